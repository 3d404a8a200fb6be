"""Tests of oauth.py against documents in memory, then of both halves over HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

import oauth
import oauth_server as guard
import pytest
from testing.places import command
from testing.scripts import (
    PATIENCE,
    POSIX,
    Site,
    Stage,
    begin,
    cli,
    client,
    fixture,
    http_answer,
    http_serving,
    mcp,
    parametrize,
)

real_fetch: Any = vars(oauth)["fetch"]
MCP, ISSUER, NEW = "https://mcp.test/mcp", "https://issuer.test", "https://new.test"
CIMD, BACK = "https://app.test/client.json", "http://127.0.0.1:1/callback"
URN = "urn:ietf:params:oauth:"
ROOT = "https://mcp.test/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE, METADATA, TOKEN = ROOT + "/mcp", ISSUER + SERVER, ISSUER + "/token"
PLACES = {
    "resource": RESOURCE,
    "issuer": METADATA,
    "registration": ISSUER + "/register",
    "token": TOKEN,
    "provider": "https://sso.test/token",
}
BASIC = {"Authorization": "Basic aStkOnMlMkI="}  # "i d" and "s+", encoded as in a form
GONE = (400, {"error": "invalid_grant", "error_description": "old"})


class World(oauth.Browser):
    """What is on the web, by URL, and a user at a browser. `asked`: verb, url, headers,
    form."""

    def __init__(self):
        self.asked = []
        self.page = {}  # parameters of the last login page
        self.resource = MCP
        self.issued, self.time, self.refresh = 0, 1000.0, ""
        self.at = {
            "callback": {"code": "the-code"},
            TOKEN: {},
            ISSUER + "/register": {"client_id": "r"},
            RESOURCE: {"resource": MCP, "authorization_servers": [ISSUER]},
            METADATA: {
                "issuer": ISSUER,
                "authorization_endpoint": ISSUER + "/authorize?tenant=1",
                "token_endpoint": TOKEN,
                "registration_endpoint": ISSUER + "/register",
                "code_challenge_methods_supported": ["S256"],
            },
            PLACES["provider"]: {
                "access_token": "jag for " + ISSUER,
                "issued_token_type": URN + "token-type:id-jag",
            },
        }

    def change(self, name: str, changes):
        merges, place = isinstance(changes, dict), PLACES.get(name, name)
        self.at[place] = {**self.at.get(place, {}), **changes} if merges else changes

    def fetch(self, verb: str, url: str, headers: dict, body=None, timeout: int = 9):
        if "//127.0.0.1" in url:
            return real_fetch(verb, url, headers, body, timeout)
        kind = headers.get("Content-Type", "")
        assert kind.endswith(("/json", "-form-urlencoded")) == bool(body)
        pairs = (
            json.loads(body) if "json" in kind else parse_qsl((body or b"").decode())
        )
        form = dict(pairs)
        self.asked.append((verb, url, headers, form))
        answer = self.at.get(url, 404)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer[1:] else answer[0]
        if isinstance(answer, dict):
            answer = 200, self.token(form, headers, answer) if url == TOKEN else answer
        answer = answer if isinstance(answer, tuple) else (answer, None)
        status, document, *more = answer
        return status, more[0] if more else {}, json.dumps(document).encode()

    def token(self, form: dict, headers: dict, changes: dict) -> dict:
        if form["grant_type"] == "authorization_code":
            digest = oauth.b64(hashlib.sha256(form["code_verifier"].encode()).digest())
            assert (digest, BACK) == (self.page["code_challenge"], form["redirect_uri"])
        assert form.get("resource") == self.resource
        assert form.get("refresh_token") in (None, self.refresh)
        self.issued += 1
        made = {
            "access_token": f"at{self.issued}",
            "token_type": "DPoP" if "DPoP" in headers else "bearer",
            "expires_in": 3600,
            "refresh_token": f"rt{self.issued}",
            **changes,
        }
        self.refresh = made["refresh_token"] or self.refresh
        return made

    @contextlib.contextmanager
    def listen(self, registered: str, state: str):
        yield BACK

    def visit(self, url: str) -> str:
        self.page = dict(parse_qsl(url.partition("?")[2]))
        assert self.page.get("resource") == self.resource
        asked = {"code_challenge_method": "S256", "response_type": "code"}
        assert asked.items() <= self.page.items()
        came = {"state": self.page["state"], **self.at["callback"]}
        given = {name: one for name, one in came.items() if one is not None}
        return f"{BACK}?{urlencode(given)}"

    def hook(self, *who: str, **options):
        options.setdefault("grant", oauth.AuthorizationCode(self))
        return oauth.OAuth(*who, **{"clock": lambda: self.time, **options})

    def forms(self, member: str) -> list[dict]:
        """Return the forms that were sent with this member."""
        return [form for *_, form in self.asked if member in form]


def with_device(world, **changes) -> None:
    """Let the issuer have a page for another device."""
    world.change("issuer", {"device_authorization_endpoint": ISSUER + "/device"})
    page = {"device_code": "d", "user_code": "AB-CD"}
    page["verification_uri"] = ISSUER + "/enter"
    world.at[ISSUER + "/device"] = {**page, **changes}


def visited(monkeypatch):
    """Make a World, and let both halves fetch from it."""
    made = World()
    monkeypatch.setattr(oauth, "fetch", made.fetch)
    monkeypatch.setattr(guard, "fetch", made.fetch)
    return made


world = pytest.fixture(visited, name="world")


def log_in(hook, challenge="", status=401, uses=2, nonce="") -> dict:
    """Call a hook as a client does after a refusal; return the headers of the last
    request."""
    found = {"www-authenticate": challenge, "dpop-nonce": nonce}
    make = hook(mcp.HttpError(status, "no", found, MCP))
    assert not make or make("POST", "https://other.test/mcp") == {}
    return [make("POST", MCP) for _ in range(uses)][-1] if make else {}


# Which document, which member (or all of it), what is wrong with it, which error.
# fmt: off
HERE = "is on this machine"
FLAWS: list[Any] = [
    ("resource", "resource", ["https://x.test/mcp", MCP[:-1], MCP[:16] + ":4"], "is about"),
    ("resource", "resource", [MCP + "#x", None, 7], "an https URL"),
    ("resource", "authorization_servers", [[], None, ISSUER], "names no authorization server"),
    ("resource", "authorization_servers", [["http://x.test"], ["https://[x"], [7]], "an https URL"),
    ("resource", "authorization_servers", [["http://127.0.0.1:9"]], HERE),
    ("resource", "", [500], "500: try"),
    ("issuer", "", [404, (200, [7])], "has no metadata"),
    ("issuer", "issuer", [ISSUER + "/", None], "is about"),
    ("issuer", "authorization_endpoint", ["http://issuer.test/a?hush", None], "an https URL"),
    ("issuer", "authorization_endpoint", ["https://localhost/x", "https://[::1]"], HERE),
    ("issuer", "token_endpoint", ["https://localhost/x", "https://[::1]"], HERE),
    ("issuer", "registration_endpoint", ["https://localhost/x", "https://[::1]"], HERE),
    ("issuer", "token_endpoint", ["https://127.1", "https://2130706433"], HERE),
    ("issuer", "token_endpoint", ["https://[::ffff:127.0.0.1]", "https://localhost."], HERE),
    ("issuer", "token_endpoint", ["https://10.0.0.1", "https://[fe80::1]"], "private network"),
    ("issuer", "registration_endpoint", [None], "by hand"),
    ("issuer", "code_challenge_methods_supported", [None, ["plain"], "S256"], "PKCE"),
    ("issuer", "token_endpoint_auth_methods_supported", [["tls"], "none"], "accepts none of none"),
    ("issuer", "authorization_response_iss_parameter_supported", [True], "or of none"),
    ("registration", "", [(400, {"error": "odd", "error_description": "x\ny"})], "400 odd x y$"),
    ("registration", "client_id", [None, 7], ": 2"),
    ("registration", "client_secret", [7], ": 2"),
    ("callback", "state", ["other", None], "another request"),
    ("callback", "iss", [ISSUER + "/", ""], "another issuer"),
    ("callback", "code", [None, ""], "no code"),
    ("callback", "error", ["denied"], "d: denied$"),
    ("token", "", [GONE], "400 invalid_"),
    ("token", "access_token", [None, 7, "a b"], "no usable Bearer"),
    ("token", "token_type", [None, "mac", "DPoP"], "no usable Bearer"),
    ("token", "error", ["odd"], "refuses: 200 odd"),
]
# fmt: on


EACH_FLAW = [(*row[:2], flaw, row[3]) for row in FLAWS for flaw in row[2]]


@parametrize("document, member, flaw, error", EACH_FLAW)
def test_oauth_refuses_a_flawed_document(world, document, member, flaw, error):
    world.change(document, {member: flaw} if member else flaw)
    with pytest.raises(oauth.OAuthError, match=error) as caught:
        log_in(world.hook())
    assert not re.search("hush|the-code|at1|\n", str(caught.value))
    assert document == "token" or TOKEN not in [url for _, url, _, _ in world.asked]


@parametrize("many, error", [(2**20, "more than"), (2**18, "has no metadata")])
def test_a_document_is_bounded(world, many, error, monkeypatch):
    """Decoded, an array takes up to 50 times as much memory as its text."""
    arrays = ",".join(["[]"] * many)
    document = f'{{"issuer": "{ISSUER}", "a": [{arrays}]}}'.encode()
    monkeypatch.setattr(mcp, "MAX_VALUES", 2**17)

    def fetch(verb, url, *more, **named):
        if url in (METADATA, ISSUER + OPENID):
            return 200, {}, document
        return world.fetch(verb, url, *more, **named)

    monkeypatch.setattr(oauth, "fetch", fetch)
    with pytest.raises(oauth.OAuthError, match=error):
        log_in(world.hook())


# `DOCUMENT = change`, in Python; `STATUS CHALLENGE => what is then posted and sent`, or
# `!` and the error; `once`: not used a second time.
FLOWS = r"""
== a refused token is renewed, or else obtained anew
401 => once new code at1
401 => !just obtained
401 => refresh at2
token = {"refresh_token": None}
401 => refresh at3
token = [(400, {"error": "slow_down"}), GONE, {"refresh_token": None}, {}]
401 => !slow_down
401 => refresh code at4
401 => code at5
== more scope: what was requested before, and the new one, once
401 Bearer scope="a" => new code:a at1
403 Bearer => None
403 => None
403 Bearer error="insufficient_scope", scope="b a" => code:a+b at2
403 Bearer error="insufficient_scope", scope=b => !wants more scope
401 Bearer scope=c => code:a+b+c at3
401 => refresh at4
== all listed scopes, without what cannot be one
resource = {"scopes_supported": [7, "y z", "x", "w"]}
401 => new code:x+w at1
== the challenge goes before the list
resource = {"scopes_supported": ["x"]}
401 Basic x="Bearer, y", BEARER Scope="\a", scope=z,Bearer scope=w => new code:a at1
== offline_access where the issuer has it, and never alone
issuer = {"scopes_supported": ["offline_access"]}
401 => new code at1
401 Bearer scope=a => code:a+offline_access at2
== [2025-03-26] without metadata there are fixed paths
resource = 404
https://mcp.test/register = {"client_id": "old"}
https://mcp.test/token = {"access_token": "at1", "token_type": "Bearer"}
401 => new code at1
== an issuer that forgot us
401 => new code at1
token = [(401, {"error": "invalid_client"}), {}]
401 => refresh new code at2
== a new registration that is refused is not replaced
401 => new code at1
token = [(401, {"error": "unauthorized_client"})]
401 => !unauthorized_client
token = [{}]
401 => refresh at2
== a URL in the challenge that is of no use
401 Bearer resource_metadata="http://new.test" => new code at1
401 Bearer resource_metadata="https://new.test" => refresh at2
401 Bearer resource_metadata="garbage" => refresh at3
resource = 404
401 Bearer resource_metadata="https://new.test" => !no metadata at https
401 Bearer resource_metadata="http://new.test" => !https URL
== the server's reason is told
403 Bearer error_description="no seat is free" => !no seat is free
401 => once new code at1
401 Bearer error_description="a\nb" => !just obtained .*: a b$
== another issuer gets nothing of the old one
401 => new code at1
resource = {"authorization_servers": [NEW]}
https://new.test/.well-known/openid-configuration = OF_NEW
callback = {"iss": NEW}
401 => new code at2
"""
FORGOT = (
    '(401, {"error": "unauthorized_client"})',
    '(400, {"error": "invalid_request"})',
)
for REFUSAL in (*FORGOT, "404"):
    FLOWS += f"""== an issuer that forgot us, and says {REFUSAL}
401 => new code at1
token = [{REFUSAL}, {{}}]
401 => refresh new code at2
401 => refresh at3
token = [GONE, {REFUSAL}, {{}}]
401 => refresh code new code at4
"""
for REFUSAL in ("503", '(400, {"error": "server_error"})', "(429, {})"):
    FLOWS += f"""== {REFUSAL} is temporary, and nothing is replaced
401 => new code at1
token = [{REFUSAL}]
401 => !temporary
token = [{{}}]
401 => refresh at2
"""
OF_NEW = {
    "issuer": NEW,
    "authorization_endpoint": NEW,
    "token_endpoint": TOKEN,
    "code_challenge_methods_supported": ["S256"],
    "registration_endpoint": ISSUER + "/register",
}
POSTS = {"authorization_code": "code", "refresh_token": "refresh", None: "new"}


@parametrize("flow", FLOWS.strip("= \n").split("\n== "), ids=lambda flow: flow[:40])
def test_oauth_flows(world, flow):
    hook = world.hook()
    for line in flow.splitlines()[1:]:
        left, expected = re.split(" =>? ", line)
        if "=> " not in line:
            world.change(left, eval(expected))
            continue
        start, (status, _, challenge) = len(world.asked), left.partition(" ")
        challenge = challenge.replace(r"\n", "\n")
        if expected.startswith("!"):
            with pytest.raises(oauth.OAuthError, match=expected[1:]):
                log_in(hook, challenge, int(status))
            continue
        once, wanted = re.fullmatch("(once )?(.*)", expected).groups("")
        headers = log_in(hook, challenge, int(status), 1 if once else 2)
        sent = headers.get("Authorization", "None").split()[-1]
        forms = [form for *_, form in world.asked[start:] if form]
        posts = [POSTS[form.get("grant_type")] for form in forms]
        scope = ":" + world.page.get("scope", "").replace(" ", "+")
        said = " ".join([*posts, sent]).replace("code", ("code" + scope).rstrip(":"))
        assert said == wanted, line


BELOW = [METADATA + "/t", ISSUER + OPENID + "/t", ISSUER + "/t" + OPENID]


@parametrize(
    "told, issuer, at, asked",
    [
        ("", ISSUER, RESOURCE, [RESOURCE, METADATA]),
        (NEW, ISSUER, NEW, [NEW, METADATA]),
        ("", ISSUER, ROOT, [RESOURCE, ROOT, METADATA, ISSUER + OPENID]),
        ("", ISSUER + "/t", ROOT, [RESOURCE, ROOT, *BELOW]),
        ("", "https://mcp.test", "", [RESOURCE, ROOT, "https://mcp.test" + SERVER]),
    ],
)
def test_oauth_looks_for_metadata_in_order(world, told, issuer, at, asked):
    world.at[at] = {**world.at.pop(RESOURCE), "authorization_servers": [7, issuer]}
    world.at[asked[-1]] = {**world.at.pop(METADATA), "issuer": issuer}
    challenge = f'Basic, Bearer resource_metadata="{told}"'
    assert log_in(world.hook(issuer=issuer), challenge)
    urls = [url for _, url, _, _ in world.asked]
    assert urls == [*asked, ISSUER + "/register", TOKEN]


BY_POST, BY_BASIC = "client_secret_post", "client_secret_basic"
SECRET, METHOD = {"client_secret": "s"}, "token_endpoint_auth_method"


@parametrize(
    "who, offered, made, proof",
    [
        ((), ["tls", "none"], {}, {"client_id": "r"}),
        ((), ["none"], {"client_id": "i d", "client_secret": "s+"}, BASIC),
        ((), None, {**SECRET, METHOD: BY_POST}, {"client_id": "r", **SECRET}),
        ((), None, {**SECRET, METHOD: "none"}, {"client_id": "r"}),
        (("i d", "s+"), None, None, BASIC),
        ((), [BY_BASIC, BY_POST], SECRET, {"client_id": "r", **SECRET}),
        (("us", "s"), [BY_POST, BY_BASIC], None, {"client_id": "us", **SECRET}),
        (("i d", "s+"), [BY_BASIC, BY_POST], None, BASIC),
        ((CIMD,), ["tls"], None, {"client_id": CIMD}),
        (("us",), ["tls"], None, {"client_id": "us"}),
    ],
)
def test_oauth_registers_and_proves_who_it_is(world, who, offered, made, proof):
    world.change("issuer", {"token_endpoint_auth_methods_supported": offered})
    by_url = {"client_id_metadata_document_supported": who == (CIMD,)}
    world.change("issuer", by_url)
    world.change("registration", 404 if made is None else made)
    log_in(world.hook(metadata_url=CIMD) if who in ((CIMD,), ()) else world.hook(*who))
    *_, headers, form = world.asked[-1]
    assert proof.items() <= {**headers, **form}.items()
    assert ("Authorization" in headers) == (proof is BASIC) == ("client_id" not in form)
    registered = {
        "application_type": "native",
        "client_name": "mcp_ref",
        "redirect_uris": [BACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": (offered or ["none"])[-1],
    }
    assert world.forms("redirect_uris") == [registered] * (made is not None)


class Left(BaseException):
    """The process ends while a user visits a page."""


@parametrize(
    "refusal",
    [
        Left(),  # Ctrl-C, at a page that says: unknown client
        oauth.OAuthError("no login in the browser within 300 seconds"),
        (403, None),
        (400, None),
        (422, {"detail": "no such client"}),
    ],
)
def test_after_one_failed_login_the_client_is_registered_anew(world, refusal):
    store = {}
    world.change("token", {"refresh_token": None})
    log_in(world.hook(store=store))

    kept = {}
    visit = world.visit

    def leave(url):
        kept.update(store)  # what is in the file when the process ends
        raise refusal

    if isinstance(refusal, BaseException):
        world.visit = leave
    else:
        world.change("token", refusal)
    with pytest.raises((Left, oauth.OAuthError)):
        log_in(world.hook(store=store, scope="more"))
    assert len(world.forms("redirect_uris")) == 1
    if isinstance(refusal, Left):
        store = kept
    world.visit = visit
    world.change("token", (200, {"access_token": "new", "token_type": "bearer"}))
    log_in(world.hook(store=store, scope="more"))
    assert len(world.forms("redirect_uris")) == 2
    log_in(world.hook(store=store, scope="and more"))
    assert len(world.forms("redirect_uris")) == 2


# What a terminal obeys, or what turns or hides text: controls, C1, directions, line
# separators, characters without a width.
HIDDEN = [*range(32), *range(127, 160), 0x200B, 0x202E, 0x2028, 0x2066, 0xE0041, 0xFEFF]


def test_what_an_issuer_says_is_shown_as_plain_text(world):
    said, text = [], "".join(map(chr, HIDDEN))
    browser = oauth.Browser(say=said.append, show=said.append, opens=False, reads=False)
    flaws = [
        ("token", (400, {"error": "odd" + text, "error_description": text})),
        ("token", (400, {"message": text})),
        ("registration", (400, {"error": text})),
        ("callback", {"error": "denied" + text, "error_description": text}),
        ("resource", {"authorization_servers": ["https://x.test/" + text]}),
        ("issuer", {"issuer": text}),
        ("issuer", {"authorization_endpoint": "https://x.test/" + text}),
        ("issuer", {"token_endpoint_auth_methods_supported": [text]}),
    ]
    for document, flaw in flaws:
        made = World()
        made.change(document, flaw)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(oauth, "fetch", made.fetch)
            with pytest.raises(oauth.OAuthError) as caught:
                log_in(made.hook(), f'Bearer error_description="{text}"')
        said.append(str(caught.value))
    with_device(world, user_code="A" + text)
    world.change("token", GONE)
    with pytest.raises(oauth.OAuthError):
        log_in(world.hook(grant=oauth.AuthorizationCode(browser)))
    assert any("enter the code A" in line for line in said)
    assert all(line.isascii() and line.isprintable() for line in said)


@parametrize("part", ['\\"', 'a=\\"'])
def test_a_challenge_is_read_in_linear_time(part):
    found = oauth.challenges('Bearer a="b", c="d, e=f')
    assert found == {"bearer": {"a": "b"}, "c": {}}
    began = time.process_time()
    oauth.challenges("Bearer " + 8192 * part)
    assert time.process_time() - began < 0.1  # it was 0.3 or more


@parametrize("answer", [{"error": "access_denied"}, {"error": "server_error"}])
def test_a_user_who_declines_needs_no_new_client(world, answer):
    store = {}
    log_in(world.hook(store=store))
    world.change("callback", {**answer, "code": None})
    with pytest.raises(oauth.OAuthError, match=answer["error"]):
        log_in(world.hook(store=store, scope="more"))
    world.change("callback", {"error": None, "code": "the-code"})
    log_in(world.hook(store=store, scope="more"))
    assert len(world.forms("redirect_uris")) == 1


def test_a_refused_login_is_tried_once(world):
    visits = []

    class Declines(World):
        def visit(self, url):
            visits.append(url)
            return world.visit(url)

    world.change("callback", {"error": "access_denied", "error_description": "no"})
    metadata, authorize = {}, mcp.bearer({"none": "ann"})
    server = mcp.Server("guarded")
    with http_serving(server, metadata=metadata, authorize=authorize) as httpd:
        metadata.update(guard.resource_metadata(httpd.url, [ISSUER]))
        world.resource = httpd.url
        hook = world.hook(grant=oauth.AuthorizationCode(Declines()))
        with pytest.raises(oauth.OAuthError) as caught:
            client.connect(httpd.url, authorize=hook)
    assert str(caught.value) == "the login failed: access_denied no"
    assert len(visits) == 1
    assert len(world.forms("redirect_uris")) == 1


@parametrize(
    "content, said",
    [
        (b'{"message": "quota"}', "401 quota"),
        (b"<html><head><title>Blocked\nby proxy</title>", "401 Blocked by proxy"),
    ],
)
def test_a_refusal_says_why_in_the_issuers_words(world, content, said, monkeypatch):
    def fetch(verb, url, *more, **named):
        if url == TOKEN:
            return 401, {}, content
        return world.fetch(verb, url, *more, **named)

    monkeypatch.setattr(oauth, "fetch", fetch)
    with pytest.raises(oauth.OAuthError, match=said):
        log_in(world.hook())


def test_oauth_grants_without_a_user(world):
    sso = oauth.EnterpriseManaged(PLACES["provider"], lambda: "who", "sso", "x")
    jag = {"grant_type": URN + "grant-type:jwt-bearer"}
    jag["assertion"] = "jag for " + ISSUER
    for grant, form in (
        (oauth.Workload(lambda issuer: "jag for " + issuer), jag),
        (sso, jag),
        (oauth.ClientCredentials(), {"grant_type": "client_credentials"}),
    ):
        hook = world.hook("i d", "s+", grant=grant)
        headers = log_in(hook, "Bearer scope=a")
        assert headers["Authorization"] == f"Bearer at{world.issued}"
        assert world.asked[-1][3] == {"scope": "a", "resource": MCP, **form}
    assert world.forms("subject_token")[0] == {
        "grant_type": URN + "grant-type:token-exchange",
        "audience": ISSUER,
        "resource": MCP,
        "scope": "a",
        "subject_token": "who",
        "subject_token_type": URN + "token-type:id_token",
        "requested_token_type": URN + "token-type:id-jag",
        "client_id": "sso",
        "client_secret": "x",
    }
    world.change("provider", {"issued_token_type": URN})
    for grant, error in ((sso, "no grant"), (oauth.ClientCredentials(), "require")):
        with pytest.raises(oauth.OAuthError, match=error):
            log_in(world.hook("us", grant=grant))
    world.change("resource", {"authorization_servers": [NEW]})
    world.change(NEW + SERVER, {"issuer": NEW})
    with pytest.raises(oauth.OAuthError, match="registered with https://issuer.test"):
        log_in(hook)


def test_oauth_keeps_tokens_in_a_file_for_its_owner(world, tmp_path):
    path = tmp_path / "new" / "tokens.json"
    one, two = (world.hook(store=oauth.TokenFile(path)) for _ in "12")
    assert log_in(one) == log_in(two, uses=1) == {"Authorization": "Bearer at1"}
    modes = [oct(place.stat().st_mode)[-3:] for place in (path, path.parent)]
    assert modes == ["600", "700"] or os.name != "posix"
    assert log_in(two) == log_in(one) == {"Authorization": "Bearer at2"}
    assert world.issued == 2
    for seconds, token in ((3600 - oauth.EARLY_SECONDS, "at2"), (1, "at3")):
        world.time += seconds
        headers = log_in(world.hook(store=oauth.TokenFile(path)))
        assert headers["Authorization"] == "Bearer " + token
    others = "others can read" if POSIX else "not"
    for mode, error in ((0o600, "not a token"), (0o640, others)):
        path.write_text("7")
        path.chmod(mode)
        with pytest.raises(oauth.OAuthError, match=error):
            log_in(one)


def test_oauth_refuses_an_identifier_that_names_no_document():
    with pytest.raises(ValueError, match="path"):
        oauth.OAuth(metadata_url="https://app.test")


def signed_claims(token: str, ours: dict, bound: dict) -> list:
    """Check signature, head and time of a token; return the other claims."""
    text, _, signature = token.rpartition(".")
    head, claims = (json.loads(guard.unb64(part)) for part in text.split("."))
    key = head.get("jwk", ours)
    assert guard.has_signed(key, "ES256", text, guard.unb64(signature))
    assert claims.pop("jti") and claims.pop("iat") == 1000
    assert head.pop("alg") == "ES256"
    proof = {"typ": "dpop+jwt", "jwk": bound}
    assert head == ({"kid": "k1"} if "aud" in claims else proof)
    return list(claims.values())


def test_oauth_signs(world, monkeypatch):
    pytest.importorskip("cryptography")
    key, store = oauth.Key(oauth.new_pem(), "k1"), {}
    methods = ["none", "private_key_jwt"]
    world.change("issuer", {"token_endpoint_auth_methods_supported": methods})
    for secret in ("", "s"):
        log_in(world.hook("robot", secret, key=key, grant=oauth.ClientCredentials()))
    refused = (400, {"error": "use_dpop_nonce"}, {"dpop-nonce": "n1"})
    world.change("token", [refused, {}])
    sent = [log_in(world.hook(store=store), "DPoP", nonce="r1", uses=1)]
    hook = world.hook(store=store)
    for nonce in ("r1", "r2", "r2"):
        sent.append(log_in(hook, 'DPoP error="use_dpop_nonce"', nonce=nonce))
    assert [one["Authorization"] for one in sent] == ["DPoP at3"] * 3 + ["DPoP at4"]
    tokens = [
        one
        for *_, headers, form in world.asked
        for one in (headers.get("DPoP"), form.get("client_assertion"))
        if one
    ]
    bound = oauth.Key(store["dpop"]["pem"]).jwk()
    tokens += [one["DPoP"] for one in sent]
    came = [signed_claims(token, key.jwk(), bound) for token in tokens]
    digests = [hashlib.sha256(token).digest() for token in (b"at3", b"at4")]
    used, new = map(oauth.b64, digests)
    assert came == [["robot", "robot", ISSUER, 1120]] * 2 + [
        ["POST", TOKEN],
        ["POST", TOKEN, "n1"],
        ["POST", TOKEN],
        ["POST", MCP, "r1", used],
        ["POST", MCP, "r1", used],
        ["POST", MCP, "r2", used],
        ["POST", MCP, "r2", new],
    ]
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    world.change("callback", None)  # nobody may log in for nothing
    with pytest.raises(oauth.OAuthError, match="pip install cryptography"):
        log_in(world.hook(dpop=True))


def test_oauth_from_end_to_end(world, monkeypatch):
    visits, visiting, hooks, metadata = [], [], [], {}

    def browse(url: str):
        page = dict(parse_qsl(url.partition("?")[2]))
        ends = ["x", "?state=x", "?code=c&state=" + page["state"]]

        def visit():
            for end in ends:
                visits.append(real_fetch("GET", page["redirect_uri"] + end, {})[0])

        visiting.append(begin(visit))

    monkeypatch.setattr("webbrowser.open", browse)
    world.change("token", (200, {"access_token": "at1", "token_type": "bearer"}))
    options = {"metadata": metadata, "authorize": lambda headers: hooks[0](headers)}
    with http_serving(mcp.Server("guarded"), **options) as httpd:
        url = httpd.url
        metadata.update(guard.resource_metadata(url, [ISSUER], scopes_supported=["a"]))
        hooks.append(guard.introspection(ISSUER + "/i", "i d", "s+", resource=url))
        world.at[ISSUER + "/i"] = {"active": True, "aud": url, "sub": "ann"}
        with client.connect(url, authorize=oauth.OAuth()) as connected:
            connected.ping()
        for answer in (404, (200, [7])):
            world.at[ISSUER + "/i"] = answer
            with pytest.raises(mcp.HttpError, match="retry"):
                hooks[0]({"authorization": "bearer at2"})
        visiting[0].result(PATIENCE)
        assert visits == [404, 404, 200] and BASIC.items() <= world.asked[-1][2].items()
    monkeypatch.setattr("webbrowser.open", bool)
    with pytest.raises(oauth.OAuthError, match="within 0 seconds"):
        log_in(world.hook(grant=oauth.AuthorizationCode(oauth.Browser(seconds=0))))
    with http_serving(fixture(Stage())) as httpd:
        assert command(oauth.__file__, httpd.url).stdout.startswith("add\necho\n")


def test_two_programs_that_share_a_token_file_lose_nothing(tmp_path):
    def fill(name: str) -> None:
        store = oauth.TokenFile(tmp_path / "tokens")
        for number in range(20):
            store[f"{name} {number}"] = {"number": number}

    for filling in [begin(fill, name) for name in "abc"]:
        filling.result(PATIENCE)
    content = json.loads((tmp_path / "tokens").read_text())
    assert len(content) == 60


def test_a_token_that_another_program_refreshed_is_used(world, tmp_path):
    path = tmp_path / "tokens"
    one, two = (world.hook(store=oauth.TokenFile(path)) for _ in "12")
    world.at[TOKEN]["refresh_token"] = "r1"
    first = log_in(one)["Authorization"]
    assert log_in(two)["Authorization"] == first
    second = log_in(one)["Authorization"]  # refused, so it is refreshed
    issued = world.issued
    assert second != first and log_in(two)["Authorization"] == second
    assert world.issued == issued


def test_a_slow_visitor_does_not_hold_up_a_login():
    browser, over = oauth.Browser(seconds=PATIENCE), threading.Event()
    with browser.listen("", "s") as uri:
        place = ("127.0.0.1", int(re.findall(r":(\d+)", uri)[0]))

        def drip() -> None:
            with socket.create_connection(place) as slow, contextlib.suppress(OSError):
                while not over.wait(0.02):
                    slow.sendall(b"x")

        def visit(url: str) -> bool:
            begin(drip)
            begin(real_fetch, "GET", uri + "?code=c&state=s", {})
            return True

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("webbrowser.open", visit)
            assert "code=c" in browser.visit("https://issuer.test/")
        over.set()


@parametrize("redirect_uri", ["", "http://127.0.0.1", "http://localhost:0/a/b"])
def test_a_browser_that_stays_in_the_foreground_can_log_in(redirect_uri):
    """As w3m does, or what the variable BROWSER names."""
    browser = oauth.Browser(redirect_uri, seconds=PATIENCE)
    with browser.listen("", "s") as uri, pytest.MonkeyPatch.context() as patch:

        def visit(url: str) -> bool:
            address = (uri + "?code=c&state=s").replace("localhost", "127.0.0.1")
            return real_fetch("GET", address, {}, None, PATIENCE)[0] == 200

        patch.setattr("webbrowser.open", visit)
        assert "code=c" in browser.visit("https://issuer.test/")


def test_a_timeout_covers_what_machines_do_for_a_login():
    over = threading.Event()

    def answer(verb: str, headers: dict, message: dict):
        if headers[":path"] == "/mcp":
            yield http_answer(401, {"WWW-Authenticate": "Bearer"})
            return
        yield http_answer(200, {"Content-Length": "9999"}, None)
        while not over.wait(0.02):
            yield b" "

    with contextlib.closing(Site(answer)) as site:
        with pytest.raises(oauth.OAuthError, match="reached|time left"):
            client.connect(site.url, timeout=0.3, authorize=oauth.OAuth())
        over.set()


def test_oauth_keeps_what_it_has_until_a_new_login_has_succeeded(world):
    store = {}
    log_in(world.hook(store=store), uses=1)
    (entry,) = store.values()
    # The user closes the page, because it says that the client is unknown.
    world.change("callback", {"state": "none"})
    world.at[TOKEN] = [GONE]
    with pytest.raises(oauth.OAuthError, match="another request"):
        log_in(world.hook(store=store, scope="more"))
    assert {**entry, "doubt": True} == [*store.values()][0]

    world.change("callback", {"code": "the-code"})
    world.at["callback"].pop("state")
    world.at[TOKEN] = {}
    world.change("registration", {"client_id": "another"})
    log_in(world.hook(store=store, scope="more"))
    assert world.page["client_id"] == "another"
    (entry,) = store.values()
    assert entry["client"][0] == "another" and not entry["doubt"]


def test_oauth_begins_a_login_that_the_user_asks_for(world):
    store = {}
    log_in(world.hook(store=store))
    world.time += 3600
    world.at[TOKEN] = [503, {}]
    with pytest.raises(oauth.OAuthError, match="temporary"):
        log_in(world.hook(store=store))
    world.at[TOKEN] = [503, {}]
    made = log_in(world.hook(store=store, asked=True))
    assert made == {"Authorization": "Bearer at2"}
    assert [one for *_, one in world.asked].count({}) and world.issued == 2


def test_oauth_says_where_its_token_is_from(world):
    store, hook = {}, world.hook()
    assert hook.outcome == ""
    for seconds, outcome in ((0, "new"), (0, "stored"), (3600, "renewed")):
        world.time += seconds
        hook = world.hook(store=store)
        log_in(hook)
        assert hook.outcome == outcome


def test_oauth_renews_a_token_in_time(world):
    hook = world.hook()
    make = hook(mcp.HttpError(401, "no", {}, MCP))
    assert make("POST", MCP) == {"Authorization": "Bearer at1"}
    world.time += 3600 - oauth.EARLY_SECONDS + 1
    assert make("POST", MCP) == {"Authorization": "Bearer at2"}
    world.time += 3600
    world.at[TOKEN] = [503]
    assert make("POST", MCP) == {"Authorization": "Bearer at2"}
    asked = len(world.asked)  # it is tried once: the server will refuse the old one
    assert make("POST", MCP) == {"Authorization": "Bearer at2"}
    assert len(world.asked) == asked


def test_oauth_keeps_servers_of_one_origin_apart(world):
    """Whatever resource the metadata of another server there names."""
    store = {}
    log_in(world.hook(store=store))
    sibling = "https://mcp.test/evil"
    world.at[ROOT + "/evil"] = {**world.at[RESOURCE], "resource": "https://mcp.test/"}
    world.at[RESOURCE]["resource"] = world.resource = "https://mcp.test/"
    log_in(world.hook(store=store), uses=1)  # a parent is accepted, and not shared
    make = world.hook(store=store)(mcp.HttpError(401, "no", {}, sibling))
    assert make("POST", sibling) == {"Authorization": "Bearer at2"}
    assert {name.split()[-1] for name in store} == {MCP, sibling}
    assert len({entry["token"]["value"] for entry in store.values()}) == 2


@parametrize("theirs", [ISSUER + "/", ISSUER])
def test_oauth_says_who_must_correct_a_slash(world, theirs):
    world.change("issuer", {"issuer": theirs})
    named = ISSUER if theirs.endswith("/") else ISSUER + "/"
    world.at[named + SERVER] = world.at[METADATA]
    world.change("resource", {"authorization_servers": [named]})
    with pytest.raises(oauth.OAuthError) as caught:
        log_in(world.hook())
    said = str(caught.value)
    assert f"about {theirs}, not {named}:" in said
    assert f"must write {theirs} in the authorization_servers" in said
    # ... and how to go on meanwhile.
    settings = {"client_id": "me", "token_url": TOKEN}
    settings["authorization_url"] = ISSUER + "/authorize?tenant=1"
    hook = oauth.hook_for(settings, browser=world, store={})
    assert log_in(hook) == {"Authorization": "Bearer at1"}


ROBOT = {"client_secret": "s", "grant": "client_credentials"}


# settings, what the login page is asked with, what the token endpoint gets
@parametrize(
    "settings, page, form",
    [
        ({"client_id": "me"}, {"client_id": "me"}, {"client_id": "me"}),
        ({"resource": "no"}, {}, {}),
        ({"audience": "api://x"}, {"audience": "api://x"}, {"audience": "api://x"}),
        ({"scope": "a b"}, {"scope": "a b"}, {}),
        ({"client_id": "me", **ROBOT}, {}, {"grant_type": "client_credentials"}),
    ],
)
def test_oauth_takes_settings(world, settings, page, form):
    if "resource" in settings:
        world.resource = None
    hook = oauth.hook_for(settings, browser=world, store={})
    assert log_in(hook) == {"Authorization": "Bearer at1"}
    assert page.items() <= world.page.items()
    assert form.items() <= world.asked[-1][3].items()


@parametrize(
    "settings, word",
    [
        ({"colour": "red"}, "colour"),
        ({"grant": "password"}, "password"),
        ({"redirect_port": "x"}, "port"),
        ({"authorization_url": NEW}, "token_url"),
    ],
)
def test_oauth_names_what_is_wrong_with_settings(settings, word):
    with pytest.raises(ValueError, match=word):
        oauth.hook_for(settings)


def test_oauth_reads_settings_where_hosts_and_people_write_them():
    host = {"clientId": "me", "scopes": ["a", "b"], "callbackPort": 7777}
    found = {"client_id": "me", "scope": "a b", "redirect_port": "7777"}
    assert oauth.settings_in(host) == found
    environ = {"MCP_OAUTH_CLIENT_SECRET": "s", "PATH": "/bin", "scope": "no"}
    assert oauth.settings_from(environ) == {"client_secret": "s"}
    assert oauth.settings_in({"resource": False}) == {"resource": "no"}
    with pytest.raises(ValueError, match="clientId"):
        oauth.settings_in({"clientId": {}})


def test_oauth_uses_another_device_where_there_is_no_browser(world, monkeypatch):
    said, slept = [], []
    monkeypatch.setattr("time.sleep", slept.append)
    pending = (400, {"error": "authorization_pending"})
    slower = (400, {"error": "slow_down"})
    device = ISSUER + "/device"
    with_device(world, interval=2)
    browser = oauth.Browser(opens=False, say=said.append)
    for answers, expected in (([pending, slower, {}], "Bearer at1"), ([GONE], "")):
        world.at[TOKEN] = answers
        hook = world.hook(grant=oauth.AuthorizationCode(browser))
        if not expected:
            with pytest.raises(oauth.OAuthError, match="invalid_grant"):
                log_in(hook)
        else:
            assert log_in(hook) == {"Authorization": expected}
    assert slept == [2, 7]
    assert said[0] == (f"Open {ISSUER}/enter on any device, and enter the code AB-CD")
    registered = world.forms("redirect_uris")[0]
    assert URN + "grant-type:device_code" in registered["grant_types"]
    asked = [form for _, url, _, form in world.asked if url == device]
    assert asked[0] == {"client_id": "r", "resource": MCP}
    for flaw in ({"user_code": None}, {"verification_uri": "http://x.test"}):
        world.at[device] = {**world.at[device], **flaw}
        with pytest.raises(oauth.OAuthError, match="code for the user|https URL"):
            log_in(world.hook(grant=oauth.AuthorizationCode(browser)))


def test_oauth_always_shows_the_page(monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda url: True)  # it opens nothing
    for opens in (True, False):
        browser = oauth.Browser(seconds=0, show=shown.append, opens=opens)
        with browser.listen("", "s"), pytest.raises(oauth.OAuthError):
            browser.visit(ISSUER)
    assert shown == [ISSUER, ISSUER]


@parametrize("ending", ["the-code", "http://127.0.0.1:1/callback?code=the-code&state="])
def test_oauth_takes_a_code_that_a_user_pastes(world, monkeypatch, ending):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    browser = oauth.Browser(seconds=9 * PATIENCE, opens=False, say=str)

    def show(url: str) -> None:
        state = dict(parse_qsl(url.partition("?")[2]))["state"]
        line = ending + (state if "?" in ending else "")
        os.write(ours, line.encode() + b"\n")

    browser.show = show
    world.at[TOKEN] = (200, {"access_token": "at1", "token_type": "bearer"})
    with open(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        hook = world.hook(grant=oauth.AuthorizationCode(browser))
        assert log_in(hook) == {"Authorization": "Bearer at1"}
    os.close(ours)
    assert world.asked[-1][3]["code"] == "the-code"


def test_oauth_needs_a_user(world):
    hook = world.hook(grant=oauth.AuthorizationCode(oauth.Nobody("call ann")))
    with pytest.raises(oauth.LoginNeeded, match="call ann"):
        log_in(hook)
    assert not [form for *_, form in world.asked if form]


def test_logout_removes_and_revokes(world, tmp_path):
    store = oauth.TokenFile(tmp_path / "tokens")
    log_in(world.hook(store=store))
    assert oauth.logout("https://mcp.test/other", store) == []
    assert "does not offer" in oauth.logout(MCP, store)[1]

    world.change("issuer", {"revocation_endpoint": ISSUER + "/revoke"})
    for answer, word in ({}, "has revoked"), ((503, {}), "may still accept"):
        log_in(world.hook(store=store))
        world.at[ISSUER + "/revoke"] = answer
        first, second = oauth.logout(MCP + "?x=secret", store)
        assert f"removed what {ISSUER} issued for {MCP}" == first and word in second
        assert world.asked[-1][3] == {"token": world.refresh, "client_id": "r"}
        assert oauth.logout(MCP, store) == [] and list(store.keys()) == []


# ---- the command


@pytest.fixture(name="guarded")
def guarded_server(world, monkeypatch, tmp_path):
    """A server that wants a login; a browser that agrees to everything."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))

    def browse(url: str):
        world.page = dict(parse_qsl(url.partition("?")[2]))
        back = f"{world.page['redirect_uri']}?code=c&state={world.page['state']}"
        begin(real_fetch, "GET", back, {})

    monkeypatch.setattr("webbrowser.open", browse)
    answer = {"access_token": "at1", "token_type": "bearer", "refresh_token": "rt1"}
    world.at[TOKEN] = (200, answer)
    metadata: dict = {}
    server = mcp.Server("guarded")
    server.tool(lambda: "done", name="work")
    authorize = mcp.bearer({"at1": "ann"})
    with http_serving(server, metadata=metadata, authorize=authorize) as serving:
        metadata.update(guard.resource_metadata(serving.url, [ISSUER]))
        yield serving.url


def test_the_command_logs_in_and_out(world, guarded, capsys):
    def run(*words: str) -> str:
        assert cli.main([*words]) == 0
        return capsys.readouterr()[0].strip()

    assert run("login", guarded) == f"logged in at {guarded}"
    assert run("login", guarded) == f"logged in already at {guarded}"
    assert json.loads(run("login", "--json", guarded))["login"] == "stored"
    assert run("call", "--login", guarded, "work") == "done"
    world.change("issuer", {"revocation_endpoint": ISSUER + "/revoke"})
    world.at[ISSUER + "/revoke"] = {}
    assert "has revoked it" in run("logout", guarded)
    assert world.asked[-1][3]["token"] == "rt1"
    assert run("logout", guarded) == f"nothing is kept for {guarded}"
    with http_serving(mcp.Server("open")) as open_to_all:
        said = run("login", open_to_all.url)
        assert said == f"no login was needed at {open_to_all.url}"


def test_the_command_takes_settings_from_everywhere(
    world, guarded, capsys, monkeypatch, tmp_path
):
    entry = {"url": guarded, "oauth": {"clientId": "file", "scopes": ["file"]}}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"it": entry}}))
    monkeypatch.setenv("MCP_OAUTH_SCOPE", "environment")
    words = ["login", "--config", str(config), "--oauth", "audience=api://x", "it"]
    assert cli.main(words) == 0
    page = {"client_id": "file", "scope": "environment", "audience": "api://x"}
    assert page.items() <= world.page.items()
    assert ISSUER not in capsys.readouterr()[0]


@parametrize(
    "words, keyword",
    [
        (["login", __file__], "URL"),
        (["logout", __file__], "URL"),
        (["login", "--oauth", "colour=red", MCP], "colour"),
        (["login", "--oauth", "client_id", MCP], "NAME=VALUE"),
        (["login", "--oauth", "redirect_port=x", MCP], "port"),
    ],
)
def test_the_command_names_what_is_wrong_with_a_login(words, keyword, capsys):
    assert cli.main(words) == 2
    printed = capsys.readouterr()[1]
    assert keyword in printed and "Open this page" not in printed


def test_the_command_opens_no_browser(world, guarded, capsys, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("it was opened"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with_device(world)
    assert cli.main(["login", "--no-browser", guarded]) == 0
    assert "enter the code AB-CD" in capsys.readouterr()[1]
