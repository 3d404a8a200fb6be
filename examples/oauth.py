#!/usr/bin/env python3
"""OAuth 2.1 beside mcp_ref.py: log in to a protected server, and protect one of your own.

A client hands an OAuth to connect(). When the server answers 401 or 403, it finds out who issues
tokens for that server, logs the user in with the browser, and the request goes out again:

    from mcp_ref import connect
    from oauth import OAuth, TokenFile
    with connect("https://mcp.example.com/mcp", authorize=OAuth(store=TokenFile())) as client:
        print(client.list_tools())

Programs without a user get their tokens by another `grant`: ClientCredentials(), with a secret or
`key=Key.from_pem(...)`; EnterpriseManaged(...) exchanges what a company's identity provider says,
Workload(...) what a platform says of a workload.

A server hands serve_http() one of two hooks, and says where its tokens come from:

    me, issuer = "https://mcp.example.com/mcp", "https://auth.example.com"
    serve_http(server, metadata=resource_metadata(me, [issuer]),
               authorize=local_keys(jwks, issuer=issuer, resource=me))

How it goes, in the order of this file: a *challenge* names the *protected resource metadata*; that
names the *issuer*, whose *metadata* names the endpoints; there the client is *registered*, once; a
*grant* brings a token, which is kept with issuer and resource, is renewed, and goes nowhere else.
Pages: basic/authorization of each revision since 2025-03-26; the extensions: ext-auth.

As a program it logs in and lists what it finds; the tokens stay in ~/.mcp_ref/tokens.json, which
nobody else can read:

    python3 examples/oauth.py https://mcp.example.com/mcp
    python3 examples/oauth.py --help

Rules kept everywhere: only https, or http on this machine; no redirect to another origin; no
token, code or secret in a log, a message or a repr().
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote_plus, urlencode, urljoin, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_ref import HttpError, Malformed, RpcError, connect, log

Message = dict[str, Any]

HTTP_SECONDS = 30           # for one exchange with an authorization server, all in all
MAX_DOCUMENT = 1 << 20      # bytes of metadata, of a token answer, of a token file
MAX_HOPS = 3                # redirects of a metadata document, all within its origin
MAX_STEP_UPS = 10           # times that one server may ask for more scope
LOGIN_SECONDS = 300         # a user has to log in
EARLY_SECONDS = 30          # a token is renewed so long before it ends
ASSERTION_SECONDS = 120     # how long an assertion of ours is valid


class OAuthError(HttpError):
    """Authorization failed. The message says why, and holds no secret."""

    def __init__(self, message: str, status: int = 401, code: str = "") -> None:
        super().__init__(status, message)
        self.code = code                    # of the authorization server: "invalid_grant", ...


# ==========================================================================================
# 1. URLs and HTTP: what may be asked, and how much of an answer is read
# ==========================================================================================

def is_loopback(host: str | None) -> bool:
    """Tell whether a name is of this very machine."""
    return re.fullmatch(r"localhost|::1|127(\.\d{1,3}){3}", host or "") is not None


def checked(url: Any, what: str, near: str = "") -> str:
    """Return a URL if it may be used: https, or http on this machine; OAuthError otherwise.

    `near` is where it was read: what is far must not send us to services of this machine.
    (basic/authorization/security-considerations §Communication Security)
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise OAuthError(f"{what} is no URL") from None
    local = is_loopback(host)
    if not re.fullmatch("[!-~]+", str(url)) or not host or "@" in parts.netloc or "#" in url \
            or parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise OAuthError(f"{what} has to be of https, or http on this machine: {place_of(url)}")
    if local and near and not is_loopback(urlsplit(near).hostname):
        raise OAuthError(f"{what} may not be on this machine: {place_of(near)} is not")
    return str(url)


def place_of(url: Any) -> str:
    """Return what may be shown of a URL: without its query, which can hold secrets."""
    return plain(str(url).partition("?")[0].partition("#")[0])


def plain(said: Any, *secrets: str) -> str:
    """Return what another side said, fit for a message: one line, short, without our secrets."""
    text = str(said)            # cut afterwards, or a piece of a secret might be left
    for secret in secrets:
        for form in (secret, quote_plus(secret)) if secret else ():
            text = text.replace(form, "***")
    return re.sub(r"[^ -~]+", " ", text[:2000])[:200]


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


class Answer(NamedTuple):
    """An HTTP answer, read to its end."""
    status: int
    headers: Message
    body: bytes

    def json(self) -> Message | None:
        """Return the object in the body, if it is one."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def exchange(verb: str, url: str, headers: Message, body: bytes | None = None,
             tls: Any = None) -> Answer:
    """Do one HTTP exchange: no redirects, no proxies, bounded in time and size; OAuthError."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=HTTP_SECONDS) \
        if parts.scheme == "http" else \
        HTTPSConnection(parts.hostname or "", parts.port, timeout=HTTP_SECONDS, context=tls)
    alarm, response, late = None, None, threading.Event()
    try:
        connection.connect()
        # A timeout of the socket starts anew with each byte: this one does not.
        alarm = threading.Timer(HTTP_SECONDS, _hang_up, [connection.sock, late])
        alarm.daemon, alarm.name = True, "oauth-deadline"
        alarm.start()
        connection.request(verb, (parts.path or "/") + ("?" + parts.query if parts.query else ""),
                           body, {"Accept": "application/json", "User-Agent": "mcp_ref", **headers})
        response = connection.getresponse()
        content = response.read(MAX_DOCUMENT + 1)
        if late.is_set():
            raise TimeoutError                  # half an answer is none
        if response.length and len(content) <= MAX_DOCUMENT:
            raise ConnectionError
    except (OSError, HTTPException, ValueError) as problem:
        raise OAuthError(f"{place_of(url)} cannot be reached ({type(problem).__name__})") from None
    finally:
        if alarm is not None:
            alarm.cancel()
        if response is not None:
            response.close()        # it holds the socket, if it was not read to its end
        connection.close()
    if len(content) > MAX_DOCUMENT:
        raise OAuthError(f"{place_of(url)} answers with more than {MAX_DOCUMENT} bytes")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()},
                  content)


def _hang_up(connection: Any, late: threading.Event) -> None:
    late.set()                      # first: who reads shall know why it ends
    try:
        connection.shutdown(2)
    except OSError:
        pass


def document(url: str, headers: Message, tls: Any = None) -> Message | None:
    """Get a metadata document; None if there is none. It must not take us to another origin."""
    for _ in range(MAX_HOPS + 1):
        answer = exchange("GET", url, headers, tls=tls)
        if answer.status in (301, 302, 303, 307, 308):
            try:
                target = urljoin(url, answer.headers.get("location", ""))
            except ValueError:
                target = ""
            if origin_of(checked(target, "a redirect")) != origin_of(url):
                raise OAuthError(f"{place_of(url)} redirects to another origin")
            url = target
            continue
        if answer.status >= 500:
            raise OAuthError(f"{place_of(url)} answers {answer.status}; try again later")
        return answer.json() if answer.status == 200 else None
    raise OAuthError(f"{place_of(url)} redirects again and again")


# ==========================================================================================
# 2. Keys: ES256 and JSON Web Tokens
#
# A client signs with its private key, to say who it is (private_key_jwt) or that a token is its own
# (DPoP). The arithmetic is pure Python and NOT constant-time: who can measure how long it takes,
# often and exactly, may learn the key. An installed `cryptography` is used instead.
# ==========================================================================================

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1       # FIPS 186-4, P-256: the field, ...
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551     # the order, ...
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,   # and the base point
      0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)

Point = Any     # (x, y), or None: the point at infinity


def _add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(factor: int, point: Point) -> Point:
    product: Point = None
    while factor:
        if factor & 1:
            product = _add(product, point)
        point, factor = _add(point, point), factor >> 1
    return product


def _is_on_curve(point: Point) -> bool:
    x, y = point
    within: bool = 0 <= x < _P and 0 <= y < _P
    return within and (y * y - x * x * x + 3 * x - _B) % _P == 0


def _nonces(secret: int, digest: bytes) -> Iterator[int]:
    """Yield the k of RFC 6979 §3.2: from the key and the message, so no bad luck gives it away."""
    k, v = bytes(32), b"\1" * 32
    seed = secret.to_bytes(32, "big") + (int.from_bytes(digest, "big") % _N).to_bytes(32, "big")
    for mark in (b"\0", b"\1"):
        k = hmac.new(k, v + mark + seed, "sha256").digest()
        v = hmac.new(k, v, "sha256").digest()
    while True:
        v = hmac.new(k, v, "sha256").digest()
        yield int.from_bytes(v, "big")
        k = hmac.new(k, v + b"\0", "sha256").digest()
        v = hmac.new(k, v, "sha256").digest()


def b64(content: bytes) -> str:
    """Encode as JOSE does: base64url, no padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unb64(content: str) -> bytes:
    """Decode it; ValueError for anything but the one way to write it."""
    found = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
    if b64(found) != content:
        raise ValueError("not base64url")
    return found


class Key:
    """A private key on the curve P-256. `ident` is its `kid`, if the other side wants one."""

    def __init__(self, secret: int, ident: str = "") -> None:
        if not 0 < secret < _N:
            raise ValueError("a key of P-256 lies between 1 and the order of the curve")
        self.secret, self.ident = secret, ident
        x, y = _times(secret, _G)
        self.jwk = {"kty": "EC", "crv": "P-256", "x": b64(x.to_bytes(32, "big")),
                    "y": b64(y.to_bytes(32, "big"))}

    def __repr__(self) -> str:
        return f"<Key {self.thumbprint}>"

    @classmethod
    def generate(cls) -> Key:
        """Make a new one."""
        return cls(int.from_bytes(os.urandom(40), "big") % (_N - 1) + 1)

    @classmethod
    def from_pem(cls, pem: str, ident: str = "") -> Key:
        """Read one: PKCS#8 ("PRIVATE KEY") or SEC 1 ("EC PRIVATE KEY"), not encrypted."""
        lines = re.search(r"-----BEGIN (EC )?PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END", pem)
        try:
            der = base64.b64decode("".join(lines[2].split()), validate=True) if lines else b""
            fields = _der(_der(der)[0])                 # SEQUENCE { version, ... }
            if lines and not lines[1]:                  # PKCS#8: version, algorithm, OCTET STRING
                if _der(fields[1]) != [_EC, _P256]:
                    raise ValueError
                fields = _der(_der(fields[2])[0])
            elif _P256 not in fields[2]:                # SEC 1 names its curve itself
                raise ValueError
            if len(fields[1]) != 32:                    # SEC 1: version, OCTET STRING, ...
                raise ValueError
            return cls(int.from_bytes(fields[1], "big"), ident)
        except (ValueError, IndexError):
            raise ValueError("this is no PEM of a private key on P-256") from None

    @property
    def thumbprint(self) -> str:
        """Return what names the key: RFC 7638."""
        members = json.dumps(self.jwk, sort_keys=True, separators=(",", ":"))
        return b64(hashlib.sha256(members.encode()).digest())

    def sign(self, message: bytes) -> bytes:
        """Sign with ES256: r and s, 32 bytes each (RFC 7518 §3.4)."""
        r, s = _sign_quickly(self.secret, message) or self._sign(hashlib.sha256(message).digest())
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def _sign(self, digest: bytes) -> tuple[int, int]:
        for k in _nonces(self.secret, digest):
            if 0 < k < _N:
                r = _times(k, _G)[0] % _N
                s = pow(k, -1, _N) * (int.from_bytes(digest, "big") + r * self.secret) % _N
                if r and s:
                    break
        return r, s

    def jwt(self, claims: Message, **header: Any) -> str:
        """Make a signed token."""
        head = {"alg": "ES256", **({"kid": self.ident} if self.ident else {}), **header}
        body = ".".join(b64(json.dumps(part, separators=(",", ":")).encode())
                        for part in (head, claims))
        return body + "." + b64(self.sign(body.encode()))

    def assertion(self, client_id: str, audience: str, now: float) -> str:
        """Say who we are: RFC 7523 §3; the audience is the issuer (and no endpoint of it)."""
        return self.jwt({"iss": client_id, "sub": client_id, "aud": audience, "iat": int(now),
                         "exp": int(now) + ASSERTION_SECONDS, "jti": b64(os.urandom(16))})

    def proof(self, verb: str, url: str, now: float, nonce: str = "", token: str = "") -> str:
        """Make a DPoP proof, for one request: RFC 9449 §4.2."""
        claims = {"jti": b64(os.urandom(16)), "htm": verb, "iat": int(now),
                  "htu": url.partition("#")[0].partition("?")[0]}
        if nonce:
            claims["nonce"] = nonce
        if token:
            claims["ath"] = b64(hashlib.sha256(token.encode()).digest())
        return self.jwt(claims, typ="dpop+jwt", jwk=self.jwk)


def _sign_quickly(secret: int, message: bytes) -> tuple[int, int] | None:
    """Sign with an installed `cryptography`; None if there is none."""
    import importlib
    try:
        primitives = importlib.import_module("cryptography.hazmat.primitives")
        ec = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ec")
        utils = importlib.import_module("cryptography.hazmat.primitives.asymmetric.utils")
        sha256 = importlib.import_module(primitives.__name__ + ".hashes").SHA256()
    except ImportError:
        return None
    signature = ec.derive_private_key(secret, ec.SECP256R1()).sign(message, ec.ECDSA(sha256))
    pair: tuple[int, int] = utils.decode_dss_signature(signature)
    return pair


_EC, _P256 = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d030107")    # object ids


def _der(content: bytes) -> list[bytes]:
    """Return the values that stand in a piece of DER, one after the other; ValueError."""
    values = []
    while content:
        size, start = content[1], 2
        if size > 127:
            start = 2 + size - 128
            size = int.from_bytes(content[2:start], "big")
        if start + size > len(content):
            raise ValueError("the DER ends too early")
        values.append(content[start:start + size])
        content = content[start + size:]
    return values


# ==========================================================================================
# 3. Discovery: from a refusal to the endpoints of the authorization server
# ==========================================================================================

def challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Take a WWW-Authenticate header apart: schemes in lower case, each with its parameters.

    RFC 9110 §11.6.1: several may stand in one header, and a comma separates both schemes and
    parameters. What has no "=" behind it is a scheme; what a name is said of first counts.
    """
    found: list[tuple[str, dict[str, str]]] = []
    token = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
    for part in re.finditer(
            rf'({token})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"=]+)(?!=))'       # a parameter
            rf'|({token})(?:[ \t]+[\w.~+/-]+=*(?=\s*(?:,|$)))?(?!\s*=)'           # a scheme
            r'|"(?:[^"\\]|\\.)*"', header[:8192]):
        name, quoted, bare, scheme = part.groups()
        if scheme:
            found.append((scheme.lower(), {}))
        elif name and found:
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
            found[-1][1].setdefault(name.lower(), value)
    return found


def well_known(url: str, name: str) -> str:
    """Return where metadata stands: /.well-known/NAME, between host and path. RFC 8414 §3.1"""
    parts = urlsplit(url)
    query = "?" + parts.query if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/.well-known/{name}{parts.path.rstrip('/')}{query}"


class Place(NamedTuple):
    """Where the tokens for a server come from."""
    resource: str               # as the server's metadata spells it, byte for byte
    issuer: str
    metadata: Message           # of the authorization server
    scopes: list[str] | None    # that the server's metadata names
    dpop: bool                  # tokens have to be bound to a key


def resource_document(url: str, challenge: dict[str, str], tls: Any = None) -> Message | None:
    """Get the protected resource metadata of the server at `url`; None if it has none.

    basic/authorization/authorization-server-discovery §Protected Resource Metadata Discovery
    Requirements: where the challenge says, or else at the path, and only then at the root.
    """
    told = challenge.get("resource_metadata")
    places = [well_known(one, "oauth-protected-resource") for one in (url, urljoin(url, "/"))]
    for candidate in [told] if told else dict.fromkeys(places):
        found = document(checked(candidate, "resource_metadata", url), {}, tls)
        if found is not None:
            _check_resource(found.get("resource"), url)
            return found
    if told:
        raise OAuthError(f"there is no metadata at {place_of(told)}, where the server says it is")
    return None


def _check_resource(resource: Any, url: str) -> None:
    """Refuse metadata of another server: it could have us fetch a token for that one.

    RFC 9728 §3.3; a resource may cover the paths below its own.
    """
    checked(resource, "the resource in the server's metadata")
    path = urlsplit(resource).path.rstrip("/") + "/"
    if origin_of(resource) != origin_of(url) or not (urlsplit(url).path + "/").startswith(path):
        raise OAuthError(f"the metadata is of {place_of(resource)}, not of {place_of(url)}")


def issuer_document(issuer: str, headers: Message, tls: Any = None) -> Message | None:
    """Get the metadata of an authorization server, at one of its places; None if it has none.

    basic/authorization/authorization-server-discovery §Authorization Server Metadata Discovery: it
    has to name this very issuer, compared as a string, or somebody speaks for somebody else.
    """
    places = [well_known(issuer, "oauth-authorization-server"),
              well_known(issuer, "openid-configuration")]
    if urlsplit(issuer).path.strip("/"):
        places.append(issuer.rstrip("/") + "/.well-known/openid-configuration")
    for url in places:
        found = document(url, headers, tls)
        if found is not None:
            if found.get("issuer") != issuer:
                raise OAuthError("the metadata at {} is of {}, not of {}".format(
                    place_of(url), place_of(found.get("issuer")), place_of(issuer)))
            return found
    return None


def discover(url: str, challenge: dict[str, str], preferred: Iterable[str] = (),
             tls: Any = None) -> Place:
    """Find out who issues tokens for the server at `url`; OAuthError."""
    found = resource_document(url, challenge, tls)
    if found is None:
        return _discover_old(url, tls)
    servers = found.get("authorization_servers")
    if not isinstance(servers, list) or not servers:
        raise OAuthError(f"the metadata of {place_of(url)} names no authorization server")
    issuer = next((one for one in preferred if one in servers), servers[0])
    metadata = issuer_document(checked(issuer, "the authorization server", url), {}, tls)
    if metadata is None:
        raise OAuthError(f"the authorization server {place_of(issuer)} has no metadata")
    scopes = found.get("scopes_supported")
    return Place(found["resource"], issuer, metadata, _words(scopes) if isinstance(scopes, list)
                 else None, found.get("dpop_bound_access_tokens_required") is True)


def _discover_old(url: str, tls: Any) -> Place:
    """[2025-03-26] basic/authorization §Authorization Base URL, §Fallbacks for Servers without
    Metadata Discovery: the server's own origin issues the tokens, if need be at fixed paths."""
    origin = urljoin(url, "/").rstrip("/")
    metadata = issuer_document(origin, {"MCP-Protocol-Version": "2025-03-26"}, tls) or {
        "issuer": origin, "authorization_endpoint": origin + "/authorize",
        "token_endpoint": origin + "/token", "registration_endpoint": origin + "/register",
        "code_challenge_methods_supported": ["S256"]}
    return Place(url, origin, metadata, None, False)


def _words(scopes: Any) -> list[str]:
    """Return scopes, from a list or a text, without what cannot be one (RFC 6749 §3.3)."""
    listed = scopes.split() if isinstance(scopes, str) else scopes
    return list(dict.fromkeys(one for one in (listed if isinstance(listed, list) else [])
                              if isinstance(one, str) and re.fullmatch(r"[!#-\[\]-~]{1,200}", one)))


# ==========================================================================================
# 4. Tokens, and where they are kept
#
# A token is of one issuer, for one resource, and for one registered client: these three are its
# name in the store, and it is never looked up by less. (basic/authorization/security-considerations
# §Token Audience Binding and Validation)
# ==========================================================================================

class Token:
    """An access token, and what came with it."""

    def __init__(self, kept: Message) -> None:
        self.kept = kept        # access_token, token_type, refresh_token, until, asked
        self.uses = 0           # requests that it went out with
        self.granted = False    # it is new, and not from a store

    def __repr__(self) -> str:
        return "<Token {}>".format(self.kept["token_type"])

    @property
    def value(self) -> str:
        """The access token itself."""
        found: str = self.kept["access_token"]
        return found

    @property
    def asked(self) -> list[str]:
        """The scopes that it was asked for with."""
        return _words(self.kept.get("asked"))

    def is_fresh(self, now: float) -> bool:
        """Tell whether it has not ended yet, as far as is known."""
        until = self.kept.get("until")
        return until is None or now < until - EARLY_SECONDS

    def is_refused_at_once(self, now: float) -> bool:
        """Tell, of one that was refused, if that was at first use: another would fare no better."""
        return self.granted and self.uses <= 1 and self.is_fresh(now)


class TokenStore:
    """Tokens and registrations, in memory: as long as this process runs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._content: Message = {}

    def __enter__(self) -> None:
        """Keep all others out: whoever renews a token reads it first, and then writes it."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def read(self) -> Message:
        """Return what is kept: {name: entry}. With the store held."""
        return self._content

    def write(self, content: Message) -> None:
        """Keep this instead. With the store held."""
        self._content = content

    def get(self, *name: str) -> Message | None:
        """Return an entry."""
        with self:
            found = self.read().get(" ".join(name))
            return found if isinstance(found, dict) else None

    def put(self, *name: str, entry: Message | None) -> None:
        """Change an entry; None removes it."""
        with self:
            content = {**self.read(), " ".join(name): entry}
            self.write({key: value for key, value in content.items() if value is not None})


class TokenFile(TokenStore):
    """The same in a file, which several programs may use at once and nobody else can read."""

    def __init__(self, path: str | os.PathLike[str] = "~/.mcp_ref/tokens.json") -> None:
        super().__init__()
        self.path = Path(path).expanduser()
        self._depth = 0
        self._held: Any = None

    def __enter__(self) -> None:
        super().__enter__()
        self._depth += 1
        if self._depth == 1:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
                self._held = os.open(f"{self.path}.lock", flags, 0o600)
                _lock_file(self._held)
            except OSError as problem:
                self.__exit__()
                raise OAuthError(f"the tokens in {self.path} cannot be used: {problem}") from None

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._held is not None:
            os.close(self._held)                # which unlocks it
            self._held = None
        super().__exit__()

    def read(self) -> Message:
        def open_it(path: str, flags: int) -> int:
            return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(
                os, "O_NONBLOCK", 0))           # a pipe in its place would have us wait
        try:
            with open(self.path, "rb", opener=open_it) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise OAuthError(f"{self.path} is no file")
                if os.name == "posix" and (status.st_mode & 0o077 or status.st_uid != os.getuid()):
                    raise OAuthError(f"others can get at {self.path}: chmod 600 it, or delete it")
                content = Answer(200, {}, file.read(MAX_DOCUMENT)).json()
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise OAuthError(f"{self.path} cannot be read: {problem.strerror}") from None
        if content is None:
            raise OAuthError(f"{self.path} is not what we wrote: delete it")
        return content

    def write(self, content: Message) -> None:
        """Write all or nothing: to a file of its own, that takes the place of the old one."""
        fresh = f"{self.path}.{os.getpid()}.{b64(os.urandom(6))}"
        if len(json.dumps(content, indent=1)) > MAX_DOCUMENT:   # which could not be read again
            raise OAuthError(f"{self.path} would have more than {MAX_DOCUMENT} bytes")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w",
                      encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
        except BaseException as problem:
            Path(fresh).unlink(missing_ok=True)     # it may hold half of the tokens
            if not isinstance(problem, OSError):
                raise
            raise OAuthError(f"{self.path} cannot be written: {problem.strerror}") from None


def _lock_file(file: int) -> None:
    """Wait until no other process holds this file."""
    try:
        import fcntl
    except ImportError:
        import msvcrt
        msvcrt.locking(file, msvcrt.LK_LOCK, 1)     # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


# ==========================================================================================
# 5. The client's registration with an authorization server
# ==========================================================================================

class Registration(NamedTuple):
    """Who we are to an issuer, and how we prove it."""
    client_id: str
    secret: str = ""
    method: str = "none"        # none, client_secret_basic, client_secret_post, private_key_jwt
    redirect_uri: str = ""
    until: float = 0            # when the secret ends; 0: never

    def __repr__(self) -> str:
        return f"<Registration {plain(self.client_id)}>"


def _methods(metadata: Message, default: str) -> list[Any]:
    """Return the ways to authenticate at the token endpoint."""
    found = metadata.get("token_endpoint_auth_methods_supported")
    return found if isinstance(found, list) else [default] if default else []


def choose_method(metadata: Message, secret: bool, key: bool) -> str:
    """Choose how to authenticate at the token endpoint, of what it takes (RFC 8414 §2)."""
    offered = _methods(metadata, "client_secret_basic")
    wanted = (["private_key_jwt"] if key else []) + (
        ["client_secret_basic", "client_secret_post"] if secret else [])
    for method in wanted:
        if method in offered:
            return method
    if secret or key and _methods(metadata, ""):
        raise OAuthError("the authorization server takes neither a secret nor a key of ours, but "
                         + plain(", ".join(map(str, offered))))
    return "private_key_jwt" if key else "none"


def client_document(url: str, redirect_uris: list[str], name: str = "mcp_ref",
                    keys: list[Message] | None = None) -> Message:
    """Make the document to put at `url`, which is the client's id from then on.

    basic/authorization/client-registration §Implementation Requirements. `keys`: public JWKs.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.path.strip("/"):
        raise ValueError("a client id metadata document has a URL of https, with a path")
    return {"client_id": url, "client_name": name, "redirect_uris": redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
            **({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": keys}} if keys
               else {"token_endpoint_auth_method": "none"})}


def register(place: Place, redirect_uri: str, name: str, tls: Any = None) -> Registration:
    """Register: basic/authorization/client-registration §Dynamic Client Registration."""
    endpoint = checked(place.metadata["registration_endpoint"], "registration_endpoint",
                       place.issuer)
    offered = _methods(place.metadata, "none")
    known = [one for one in ("none", "client_secret_basic", "client_secret_post") if one in offered]
    if not known:
        raise OAuthError(f"{place.issuer} registers no client that authenticates as we can")
    native = is_loopback(urlsplit(redirect_uri).hostname) or not redirect_uri.startswith("http")
    # ... §Application Type and Redirect URI Constraints; .../index §Refresh Tokens
    answer = exchange("POST", endpoint, {"Content-Type": "application/json"}, json.dumps({
        "client_name": name, "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": known[0],
        "application_type": "native" if native else "web"}).encode(), tls)
    made = answer.json() or {}
    ident, secret = made.get("client_id"), made.get("client_secret")
    if answer.status not in (200, 201) or not isinstance(ident, str) \
            or not re.fullmatch("[ -~]{1,4096}", ident):
        raise OAuthError("{} does not register us: {} {} {}".format(
            place_of(endpoint), answer.status, plain(made.get("error", "")),
            plain(made.get("error_description", ""))))
    secret = secret if isinstance(secret, str) and re.fullmatch("[ -~]{1,4096}", secret) else ""
    method = made.get("token_endpoint_auth_method") or (known[0] if known[0] != "none" or not secret
                                                        else "client_secret_basic")
    if method not in ("none", "client_secret_basic", "client_secret_post"):
        raise OAuthError(f"{place_of(endpoint)} wants the odd method {plain(method)}")
    until = made.get("client_secret_expires_at")
    return Registration(ident, secret, method if secret else "none", redirect_uri,
                        until if secret and isinstance(until, (int, float)) else 0)


# ==========================================================================================
# 6. The hook itself
# ==========================================================================================

class Seat:
    """What is known of one server: where its tokens come from, and the one in use."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self.token: Token | None = None
        self.step_ups = 0


class OAuth:
    """An `authorize` hook for connect(): one for each client; several may share a store.

    `issuer`: the only one to deal with; say it whenever you know it. `client_id`, `client_secret`,
    `key`: a client that was registered by hand, with `issuer` (else with the first that it meets).
    `metadata_url`: a client id metadata document that you host. Without both we register ourselves,
    as `name`. `grant` says how tokens are got, `browser` where the user logs in, `scope` what to
    ask for besides what the server wants. `offline=False`: no refresh tokens. `dpop`: tokens bound
    to a key (None: if the server wants that).
    """

    def __init__(self, client_id: str = "", client_secret: str = "", *, issuer: str = "",
                 key: Key | None = None, metadata_url: str = "", name: str = "mcp_ref",
                 scope: str = "", grant: Grant | None = None, browser: Browser | None = None,
                 store: TokenStore | None = None, offline: bool = True, dpop: bool | None = None,
                 tls: Any = None, clock: Callable[[], float] = time.time) -> None:
        if metadata_url:
            client_document(metadata_url, [])       # which refuses a bad one
        self.client_id, self.issuer, self.key = client_id, issuer, key
        self.metadata_url, self.name, self.scope = metadata_url, name, scope
        self.browser = browser or Browser()
        self.grant = grant or AuthorizationCode()
        self.store = store or TokenStore()
        self.offline, self.dpop, self.tls, self.clock = offline, dpop, tls, clock
        self._secret = client_secret
        self._lock = threading.Lock()               # one login at a time
        self._seats: dict[str, Seat] = {}           # by the server's URL
        self._nonces: dict[Any, str] = {}           # of DPoP, by origin: the last one counts
        self._dpop_key: Key | None = None

    def __repr__(self) -> str:
        return f"<OAuth {plain(self.client_id or self.metadata_url or self.name)}>"

    def __call__(self, refusal: HttpError) -> Any:
        """Return what makes the headers of the next requests, or None if that is no matter of ours.

        Raises OAuthError. Called by the client, on the thread of the request that was refused.
        """
        with self._lock:
            url = checked(refusal.url, "the server")
            scheme, challenge = self._challenge(refusal)
            seat = self._seats.setdefault(url, Seat())
            if seat.token is not None:      # which has no place in a URL, or in a message
                challenge = {name: value for name, value in challenge.items()
                             if seat.token.value not in value}
            if self._note_nonce(url, refusal.headers) and seat.token is not None \
                    and challenge.get("error") == "use_dpop_nonce":
                return self._headers(url, seat.token)       # RFC 9449 §9: the same token once more
            if refusal.status == 403 and challenge.get("error") != "insufficient_scope":
                return None
            place = discover(url, challenge, self._known_issuers(), self.tls)
            if self.issuer and place.issuer != self.issuer:
                raise OAuthError(f"tokens now come from {place_of(place.issuer)}, but this client "
                                 f"is registered with {place_of(self.issuer)}")
            place = place._replace(dpop=self._wants_dpop(place, scheme))
            token = self._token_for(seat, place, challenge, refusal.status)
            seat.place, seat.token = place, token
            return self._headers(url, token)

    def _challenge(self, refusal: HttpError) -> tuple[str, dict[str, str]]:
        """Return the challenge that is ours: Bearer or DPoP; an empty one if there is none."""
        found = challenges(refusal.headers.get("www-authenticate", ""))
        wanted = ("dpop", "bearer") if self.dpop else ("bearer", "dpop")
        return next(((scheme, parameters) for one in wanted for scheme, parameters in found
                     if scheme == one), ("", {}))

    def _headers(self, url: str, token: Token) -> Callable[[str, str], dict[str, str]]:
        """Return a function that makes the headers of one request, for this server and no other."""
        key = self.proof_key() if token.kept["token_type"] == "DPoP" else None

        def headers(verb: str, target: str) -> dict[str, str]:
            if origin_of(target) != origin_of(url):
                return {}
            token.uses += 1
            made = {"Authorization": "{} {}".format(token.kept["token_type"], token.value)}
            if key is not None:
                made["DPoP"] = key.proof(verb, target, self.clock(), self._nonces.get(
                    origin_of(target), ""), token.value)
            return made
        return headers

    # ---- which token to use

    def _token_for(self, seat: Seat, place: Place, challenge: dict[str, str], status: int) -> Token:
        """Return a token that may do: a newer one from the store, a renewed or a new one."""
        before = seat.token if seat.place is not None and seat.place[:2] == place[:2] else None
        scopes = self._scopes(place, challenge, before)
        wanted = _words(challenge.get("scope", ""))
        needed = {*wanted, *_words(self.scope)}
        if status == 403 or before is not None and not needed <= set(before.asked):
            self._count_step_up(seat, before, wanted)
        elif before is not None and before.is_refused_at_once(self.clock()):
            seat.token = None               # the next request may try again
            raise OAuthError("the server refuses the token that was made for it just now")
        client = self.registered(place)
        if client is not None:
            with self.store:                # whoever else wants to renew it, waits, and finds it
                kept = self._kept(place, client)
                if kept is not None and (before is None or kept.value != before.value) \
                        and kept.is_fresh(self.clock()) and needed <= set(kept.asked):
                    return kept
                known = kept or before
                renewed = self._renew(place, client, known) if known and status == 401 \
                    and needed <= set(known.asked) else None
                if renewed is not None:
                    return renewed
        return self.grant.get(self, place, scopes)

    def _scopes(self, place: Place, challenge: dict[str, str], before: Token | None) -> list[str]:
        """Choose the scopes to ask for: basic/authorization/index §Scope Selection Strategy; those
        of before stay (... §Step-Up Authorization Flow)."""
        scopes = _words(challenge.get("scope", ""))
        if not scopes and before is None:
            scopes = place.scopes or []
        return _words([*(before.asked if before else []), *scopes, *_words(self.scope)])

    def _count_step_up(self, seat: Seat, before: Token | None, wanted: list[str]) -> None:
        """Refuse to ask the user again for what he was asked, or again and again."""
        seat.step_ups += 1
        if before is not None and set(wanted) <= set(before.asked):
            scope = plain(" ".join(wanted)) or "(it does not say which)"
            raise OAuthError(f"the server wants the scope {scope}, but refuses a token that was "
                             "asked for with it", 403)
        if seat.step_ups > MAX_STEP_UPS:
            raise OAuthError(f"the server wanted more scope {MAX_STEP_UPS} times", 403)

    def _kept(self, place: Place, client: Registration) -> Token | None:
        entry = self.store.get("token", self.grant.name, place.issuer, place.resource,
                               client.client_id)
        return Token(entry) if entry and isinstance(entry.get("access_token"), str) \
            and entry.get("token_type") in ("Bearer", "DPoP") else None

    def _renew(self, place: Place, client: Registration, known: Token) -> Token | None:
        """Trade the refresh token for new tokens; None if there is none, or it has ended."""
        refresh = known.kept.get("refresh_token")
        if not isinstance(refresh, str):
            return None
        try:
            return self.fetch(place, client, {"grant_type": "refresh_token",
                                              "refresh_token": refresh}, known.asked, refresh)
        except OAuthError as problem:
            if problem.code != "invalid_grant":
                raise
            self.store.put("token", self.grant.name, place.issuer, place.resource, client.client_id,
                           entry=None)
            return None

    # ---- who we are

    def _known_issuers(self) -> list[str]:
        """Return the issuers that know us, should a server have several."""
        if self.issuer:
            return [self.issuer]
        if self.client_id:
            bound = self.store.get("bound", self.client_id) or {}
            return [one for one in (bound.get("issuer"),) if one]
        with self.store:
            return [name[7:] for name in self.store.read() if name.startswith("client ")]

    def registered(self, place: Place) -> Registration | None:
        """Return our registration with this issuer, and no other; None if there is none yet.

        basic/authorization/client-registration §Authorization Server Binding
        """
        if self.client_id:
            issuer = self.issuer or (self.store.get("bound", self.client_id) or {}).get("issuer")
            if issuer and issuer != place.issuer:
                raise OAuthError(f"tokens now come from {place_of(place.issuer)}, but this client "
                                 f"is registered with {place_of(issuer)}")
            if not issuer:
                self.store.put("bound", self.client_id, entry={"issuer": place.issuer})
            method = choose_method(place.metadata, bool(self._secret), self.key is not None)
            return Registration(self.client_id, self._secret, method)
        if self.metadata_url \
                and place.metadata.get("client_id_metadata_document_supported") is True:
            return Registration(self.metadata_url, "", "private_key_jwt" if self.key else "none")
        entry = self.store.get("client", place.issuer)
        if entry is None:
            return None
        client = Registration(**{name: value for name, value in entry.items()
                                 if name in Registration._fields})
        return client if not client.until or self.clock() < client.until else None

    def client_for(self, place: Place, redirect_uri: str) -> Registration:
        """Return our registration, made now if need be: .../client-registration, in its order."""
        client = self.registered(place)
        if client is not None and client.redirect_uri in ("", redirect_uri):
            return client
        if "registration_endpoint" not in place.metadata:
            raise OAuthError(f"{place_of(place.issuer)} registers no clients by itself: do that by "
                             "hand, and give the client_id")
        client = register(place, redirect_uri, self.name, self.tls)
        self.store.put("client", place.issuer, entry=client._asdict())
        return client

    # ---- the token endpoint

    def fetch(self, place: Place, client: Registration, form: Message, scopes: list[str],
              refresh: str = "") -> Token:
        """Ask the token endpoint for a token, and keep it. `refresh`: the one that it renews."""
        endpoint = checked(place.metadata.get("token_endpoint"), "token_endpoint", place.issuer)
        # basic/authorization/index §Resource Parameter Implementation
        form = {**form, "resource": place.resource}
        headers: Message = {}
        if client.method == "private_key_jwt" and self.key is not None:
            form.update(client_assertion_type=ASSERTION, client_assertion=self.key.assertion(
                client.client_id, place.issuer, self.clock()))
        elif client.method == "client_secret_basic":
            headers["Authorization"] = basic(client.client_id, client.secret)
        else:
            form["client_id"] = client.client_id
            if client.method == "client_secret_post":
                form["client_secret"] = client.secret
        try:
            made = post_form(endpoint, form, headers, [client.secret], self._prove(place, endpoint),
                             self.tls)
        except OAuthError as problem:
            if problem.code == "invalid_client" and not self.client_id:
                self.store.put("client", place.issuer, entry=None)      # next time we register anew
            raise
        return self._keep(place, client, made, scopes, refresh)

    def _keep(self, place: Place, client: Registration, made: Message, scopes: list[str],
              refresh: str) -> Token:
        """Check a token answer, and keep what it brings (RFC 6749 §5.1)."""
        value, kind = made.get("access_token"), str(made.get("token_type")).lower()
        if not isinstance(value, str) or not re.fullmatch("[!-~]{1,16384}", value) \
                or kind not in ("bearer", "dpop"):
            raise OAuthError("the authorization server gives no token that we can use")
        if kind == "dpop" and not place.dpop or kind == "bearer" and place.dpop and self.dpop:
            raise OAuthError(f"the authorization server gives a token of the wrong kind, {kind}")
        told = str(made.get("expires_in"))
        lifetime = float(told) if told.isdecimal() else None
        fresh = made.get("refresh_token")
        entry = {"access_token": value, "token_type": "DPoP" if kind == "dpop" else "Bearer",
                 "refresh_token": fresh if isinstance(fresh, str) and re.fullmatch(
                     "[ -~]{1,16384}", fresh) else refresh or None,
                 "until": None if lifetime is None else self.clock() + lifetime, "asked": scopes}
        self.store.put("token", self.grant.name, place.issuer, place.resource, client.client_id,
                       entry=entry)
        token = Token(entry)
        token.granted = True
        return token

    # ---- DPoP: RFC 9449

    def _wants_dpop(self, place: Place, scheme: str) -> bool:
        offered = place.metadata.get("dpop_signing_alg_values_supported")
        able = isinstance(offered, list) and "ES256" in offered
        if self.dpop is not None:
            if self.dpop and not able:
                raise OAuthError(f"{place_of(place.issuer)} gives no tokens bound to a key of ours")
            return self.dpop
        return able and (place.dpop or scheme == "dpop")

    def proof_key(self) -> Key:
        """Return the key that tokens are bound to: kept with them, for the next process."""
        if self._dpop_key is None:
            with self.store:
                entry = self.store.get("dpop") or {"secret": Key.generate().secret}
                self.store.put("dpop", entry=entry)
            self._dpop_key = Key(int(entry["secret"]))
        return self._dpop_key

    def _note_nonce(self, url: str, headers: Message) -> bool:
        """Note what an origin wants in the next proof; tell whether that is something new."""
        nonce, origin = headers.get("dpop-nonce"), origin_of(url)
        if not nonce or nonce == self._nonces.get(origin) or not re.fullmatch("[!-~]+", nonce):
            return False
        self._nonces[origin] = nonce
        return True

    def _prove(self, place: Place, endpoint: str) -> Callable[[Message | None], Message | None]:
        """Return a function from the headers of the last answer to those of the next attempt."""
        def prove(answered: Message | None) -> Message | None:
            renewed = answered is not None and self._note_nonce(endpoint, answered)
            if answered is not None and not renewed:
                return None
            nonce = self._nonces.get(origin_of(endpoint), "")
            return {"DPoP": self.proof_key().proof("POST", endpoint, self.clock(), nonce)} \
                if place.dpop else {}
        return prove


def post_form(endpoint: str, form: Message, headers: Message, secrets: list[str],
              prove: Callable[[Message | None], Message | None], tls: Any = None) -> Message:
    """Post a form to a token endpoint; return the answer. OAuthError, which tells no secret."""
    body = urlencode({name: value for name, value in form.items() if value}).encode()
    headers = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    proof = prove(None)
    while True:
        answer = exchange("POST", endpoint, {**headers, **(proof or {})}, body, tls)
        made = answer.json() or {}
        again = prove(answer.headers)           # RFC 9449 §8: it may want a nonce in the proof
        if made.get("error") != "use_dpop_nonce" or not again:
            break
        proof, prove = again, lambda _: None
    if answer.status != 200 or "error" in made:
        hidden = [*secrets, headers.get("Authorization", "").partition(" ")[2],
                  *(str(form.get(name, "")) for name in _SECRET)]
        raise OAuthError("{} refuses: {} {} {}".format(
            place_of(endpoint), answer.status, plain(made.get("error", ""), *hidden),
            plain(made.get("error_description", ""), *hidden)).rstrip(),
            code=plain(made.get("error"), *hidden))
    return made


def basic(name: str, secret: str) -> str:
    """Make the header of HTTP Basic: each is encoded as in a form first (RFC 6749 §2.3.1)."""
    pair = f"{quote_plus(name)}:{quote_plus(secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


_SECRET = ("code", "code_verifier", "client_secret", "client_assertion", "refresh_token",
           "assertion", "subject_token")
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


# ==========================================================================================
# 7. Grants: the ways to a first token
# ==========================================================================================

class Grant:
    """A way to a token. `name` keeps those of different ways apart in a store."""

    name = ""

    def get(self, oauth: OAuth, place: Place, scopes: list[str]) -> Token:
        """Return a new token; OAuthError."""
        raise NotImplementedError


class AuthorizationCode(Grant):
    """The user logs in with the browser: basic/authorization/index §Authorization Flow Steps."""

    name = "user"

    def get(self, oauth: OAuth, place: Place, scopes: list[str]) -> Token:
        metadata, browser = place.metadata, oauth.browser
        endpoint = checked(metadata.get("authorization_endpoint"), "authorization_endpoint",
                           place.issuer)
        offered = metadata.get("code_challenge_methods_supported")
        if not isinstance(offered, list) or "S256" not in offered:
            # .../security-considerations §Authorization Code Protection
            raise OAuthError(f"{place_of(place.issuer)} does not offer PKCE with S256")
        kept = oauth.store.get("client", place.issuer) or {}
        verifier, state = b64(os.urandom(48)), b64(os.urandom(24))
        uri = browser.start(str(kept.get("redirect_uri") or ""))
        try:
            client = oauth.client_for(place, uri)
            address = browser.visit(endpoint + ("&" if "?" in endpoint else "?") + urlencode(
                self._question(oauth, place, client, scopes, uri, verifier, state)), state)
        finally:
            browser.stop()
        code = self._code(address, place, state)
        return oauth.fetch(place, client, {"grant_type": "authorization_code", "code": code,
                                           "redirect_uri": uri, "code_verifier": verifier}, scopes)

    @staticmethod
    def _question(oauth: OAuth, place: Place, client: Registration, scopes: list[str], uri: str,
                  verifier: str, state: str) -> Message:
        """Return the parameters of the page to visit."""
        asked: Message = {
            "response_type": "code", "client_id": client.client_id, "redirect_uri": uri,
            "state": state, "resource": place.resource, "code_challenge_method": "S256",
            "code_challenge": b64(hashlib.sha256(verifier.encode()).digest())}
        offline = oauth.offline and scopes \
            and "offline_access" in _words(place.metadata.get("scopes_supported"))
        if offline:             # .../index §Refresh Tokens; OpenID Connect wants consent for it
            scopes = _words([*scopes, "offline_access"])
            asked["prompt"] = "consent"
        if scopes:
            asked["scope"] = " ".join(scopes)
        if place.dpop:
            asked["dpop_jkt"] = oauth.proof_key().thumbprint       # RFC 9449 §10
        return asked

    @staticmethod
    def _code(address: str, place: Place, state: str) -> str:
        """Return the code in the address that the browser was sent back to.

        basic/authorization/index §Authorization Response Validation: before anything else of it is
        believed, errors included, it has to be of the issuer that was asked.
        """
        pairs = parse_qsl(urlsplit(address).query, keep_blank_values=True)
        came = dict(pairs)
        if len(came) != len(pairs) or not hmac.compare_digest(came.get("state", "").encode(),
                                                              state.encode()):
            raise OAuthError("the browser came back with an answer to something else")
        issuer = came.get("iss")
        told = place.metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != place.issuer and (issuer is not None or told):
            raise OAuthError("the browser came back with an answer of another issuer, or of none")
        if "error" in came or not came.get("code"):
            raise OAuthError("the login failed: {} {}".format(
                plain(came.get("error", "no code"), state),
                plain(came.get("error_description", ""), state)), code=came.get("error", ""))
        return came["code"]


class ClientCredentials(Grant):
    """A program that acts for itself: ext-auth oauth-client-credentials §Flow Steps."""

    name = "self"
    extension = "io.modelcontextprotocol/oauth-client-credentials"

    def get(self, oauth: OAuth, place: Place, scopes: list[str]) -> Token:
        client = oauth.registered(place)
        if client is None or client.method == "none":
            raise OAuthError("client credentials need a client_id, with a secret or a key")
        return oauth.fetch(place, client, {"grant_type": "client_credentials",
                                           "scope": " ".join(scopes)}, scopes)


JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Workload(Grant):
    """A workload that its platform vouches for: RFC 7523 §2.1.

    `assertion`: the platform's JWT for the issuer, or a function from the issuer to it. A refusal
    is final: there is neither another try nor another way.
    """

    name = "workload"

    def __init__(self, assertion: str | Callable[[str], str]) -> None:
        self._assertion = assertion

    def get(self, oauth: OAuth, place: Place, scopes: list[str]) -> Token:
        client = oauth.registered(place) or Registration("")
        said = self._assertion
        proof = said if isinstance(said, str) else said(place.issuer)
        return oauth.fetch(place, client, {"grant_type": JWT_BEARER, "assertion": proof,
                                           "scope": " ".join(scopes)}, scopes)


class EnterpriseManaged(Grant):
    """A company's identity provider decides: ext-auth enterprise-managed-authorization.

    `identity`: the ID token of the user's single sign-on, or a function that returns one. It is
    exchanged at `endpoint`, the provider's token endpoint, for a grant to this very server.
    """

    name = "enterprise"
    extension = "io.modelcontextprotocol/enterprise-managed-authorization"

    def __init__(self, endpoint: str, identity: str | Callable[[], str], client_id: str,
                 client_secret: str = "") -> None:
        self.endpoint = checked(endpoint, "the token endpoint of the identity provider")
        self.client_id = client_id
        self._identity, self._secret = identity, client_secret

    def get(self, oauth: OAuth, place: Place, scopes: list[str]) -> Token:
        client = oauth.registered(place)
        if client is None:
            raise OAuthError(f"this needs a client registered with {place_of(place.issuer)}")
        kind, user = "urn:ietf:params:oauth:token-type:id-jag", self._identity
        made = post_form(self.endpoint, {       # ... §4. Token Exchange
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": kind, "audience": place.issuer, "resource": place.resource,
            "scope": " ".join(scopes),
            "subject_token": user if isinstance(user, str) else user(),
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "client_id": self.client_id, "client_secret": self._secret}, {}, [], lambda _: None,
            oauth.tls)
        if made.get("issued_token_type") != kind or not isinstance(made.get("access_token"), str):
            raise OAuthError(f"{place_of(self.endpoint)} gives no grant for this server")
        return oauth.fetch(place, client, {     # ... §5. Access Token Request
            "grant_type": JWT_BEARER, "assertion": made["access_token"],
            "scope": " ".join(scopes)}, scopes)


# ==========================================================================================
# 8. The browser, and the way back
#
# RFC 8252 §7.3: the browser is sent back to a port of this machine, that is open only meanwhile.
# Any page and any program here can knock there as well: only what brings our `state` counts.
# ==========================================================================================

class Browser:
    """Where the user logs in. `redirect_uri`: a fixed one, if the client was registered with it.

    `open_page`: opens a URL, and tells whether it could. A subclass without a browser overrides
    start(), visit() and stop().
    """

    def __init__(self, redirect_uri: str = "", seconds: float = LOGIN_SECONDS,
                 open_page: Callable[[str], Any] | None = None) -> None:
        parts = urlsplit(redirect_uri or "http://127.0.0.1/callback")
        if parts.scheme != "http" or not is_loopback(parts.hostname):
            raise ValueError("the way back is of http, on this machine")
        self.redirect_uri, self.seconds = redirect_uri, seconds
        self._open_page = open_page
        self._landing: Any = None

    def start(self, again: str = "") -> str:
        """Open a port, the one of `again` if it is free; return the address to come back to."""
        wanted = self.redirect_uri or again
        parts = urlsplit(wanted or "http://127.0.0.1/callback")
        host, path = parts.hostname or "127.0.0.1", parts.path or "/"
        try:
            self._landing = _landing(host, parts.port or 0, path)
        except OSError as problem:
            if self.redirect_uri:
                raise OAuthError(f"{self.redirect_uri} cannot be opened: {problem}") from None
            self._landing = _landing("127.0.0.1", 0, path)
            host = "127.0.0.1"
        threading.Thread(target=self._landing.serve_forever, args=(0.05,), name="oauth-landing",
                         daemon=True).start()
        place = f"[{host}]" if ":" in host else host
        return f"http://{place}:{self._landing.server_port}{path}"

    def visit(self, url: str, state: str) -> str:
        """Show the user a page; return the address that the browser came back to. OAuthError"""
        self._landing.state = state
        if self._open_page is None:
            import webbrowser
            self._open_page = webbrowser.open
        if not self._open_page(url):
            log("open this page to log in: " + url)
        if not self._landing.done.wait(self.seconds):
            raise OAuthError(f"nobody logged in within {self.seconds:g} seconds")
        address: str = self._landing.address
        return address

    def stop(self) -> None:
        """Close the port."""
        landing, self._landing = self._landing, None
        if landing is not None:
            landing.shutdown()
            landing.server_close()


_PAGE = b"""<!DOCTYPE html><meta charset="utf-8"><title>%s</title>
<body style="font: 1.2em sans-serif; margin: 3em"><p>%s</p>"""


def _landing(host: str, port: int, path: str) -> Any:
    """Make the HTTP server that waits for the browser."""
    import socket
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Visit(BaseHTTPRequestHandler):
        timeout = 5             # seconds: nobody may keep it busy
        server: Landing

        def do_GET(self) -> None:
            came, _, query = self.path.partition("?")
            state = dict(parse_qsl(query)).get("state", "")
            known = came == path and bool(self.server.state) and hmac.compare_digest(
                state.encode("utf-8", "replace"), self.server.state.encode())
            if known and not self.server.done.is_set():
                self.server.address = self.path
                self.server.done.set()
            self.send_response(200 if known else 404)
            page = _PAGE % ((b"Logged in", b"That is all: you can close this page.") if known else
                            (b"Not found", b"There is nothing here."))
            for name, value in {"Content-Type": "text/html", "Content-Length": str(len(page)),
                                "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
                                "Content-Security-Policy": "default-src 'none'; style-src "
                                "'unsafe-inline'", "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            """Say nothing: the address holds the code."""

    class Landing(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 50         # with 5, a burst makes the browser wait for a second
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        allow_reuse_address = os.name == "posix"
        state = ""                      # what a visit has to bring
        address = ""                    # what it brought

        def __init__(self) -> None:
            self.done = threading.Event()
            self.busy = threading.BoundedSemaphore(20)
            super().__init__(("127.0.0.1" if host == "localhost" else host, port), Visit)

        def server_bind(self) -> None:
            """Bind, without the question for a name that http.server asks."""
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, self.allow_reuse_address)
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = host, self.socket.getsockname()[1]

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            """Serve one visit, unless too many are under way."""
            if not self.busy.acquire(blocking=False):
                self.shutdown_request(request)
                return
            # Each byte gives the socket's own timeout a new start: this one is for all of them.
            alarm = threading.Timer(Visit.timeout, _hang_up, [request, threading.Event()])
            alarm.daemon, alarm.name = True, "oauth-deadline"
            alarm.start()
            try:
                super().process_request_thread(request, client_address)
            finally:
                alarm.cancel()
                self.busy.release()

        def handle_error(self, *_: Any) -> None:
            """Say nothing: somebody hung up."""

    return Landing()


# ==========================================================================================
# 9. The other side: a server that takes tokens
#
# basic/authorization/index §Token Handling: a token has to be made for this very server. These are
# hooks for serve_http(authorize=...). They see headers only: a token in the URL is no token.
# ==========================================================================================

class Principal:
    """Who calls: ctx.principal. The same subject and client are the same principal."""

    def __init__(self, claims: Message) -> None:
        self.claims = claims
        self.issuer, self.subject = claims.get("iss"), claims.get("sub", claims.get("username"))
        self.client_id = claims.get("client_id", claims.get("azp"))
        self.scopes = frozenset(_words(claims.get("scope", claims.get("scp", ""))))
        self._key = self.issuer, self.subject, self.client_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<Principal {self._key}>"


def resource_metadata(resource: str, issuers: list[str], scopes: Iterable[str] = (),
                      **members: Any) -> Message:
    """Make the protected resource metadata, for serve_http(metadata=...): RFC 9728 §2.

    `offline_access` does not belong there (basic/authorization/index §Refresh Tokens).
    """
    listed = [one for one in scopes if one != "offline_access"]
    return {"resource": checked(resource, "the resource"),
            "authorization_servers": [checked(one, "an issuer") for one in issuers],
            **({"scopes_supported": listed} if listed else {}),
            "bearer_methods_supported": ["header"], **members}


class Validator:
    """The hook: from headers to a Principal, or HttpError 401 or 403.

    `find`: from a token to its claims, None if it is not valid. `scopes` are needed for anything at
    all. Claims are remembered for `seconds`, at most until the token ends.
    """

    def __init__(self, find: Callable[[str], Message | None], resource: str, issuer: str = "",
                 scopes: Iterable[str] = (), seconds: float = 0, most: int = 1000,
                 clock: Callable[[], float] = time.time) -> None:
        self._find, self._seconds, self._most, self._clock = find, seconds, most, clock
        self.resource, self.issuer = checked(resource, "the resource"), issuer
        self.scopes = list(scopes)
        self._known: dict[bytes, tuple[float, Message]] = {}    # by digest: no token is kept
        self._lock = threading.Lock()

    def __call__(self, headers: dict[str, str]) -> Principal:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise self._refusal(401, "A token is needed")
        sound = re.fullmatch(r"[A-Za-z0-9._~+/=-]{1,16384}", token)
        claims = self._claims(token) if sound else None
        if claims is None or self._flaw(claims):
            raise self._refusal(401, "The token is not valid here", "invalid_token")
        principal = Principal(claims)
        if not principal.scopes.issuperset(self.scopes):
            raise self._refusal(403, "The token has too little scope", "insufficient_scope")
        return principal

    def _claims(self, token: str) -> Message | None:
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock()
        with self._lock:
            until, known = self._known.get(digest, (0.0, None))
        if known is not None and now < until:
            return known
        claims = self._find(token)
        if claims is not None and self._seconds:
            with self._lock:
                while len(self._known) >= self._most:
                    self._known.pop(next(iter(self._known)))
                self._known[digest] = now + self._seconds, claims
        return claims

    def _flaw(self, claims: Message) -> str:
        """Say what is wrong with the claims of a token, if anything: RFC 9068 §4."""
        audience, now = claims.get("aud"), self._clock()
        ends, starts = claims.get("exp"), claims.get("nbf", 0)      # type: Any, Any
        if self.resource not in (audience if isinstance(audience, list) else [audience]):
            return "it is for somebody else"
        if self.issuer and claims.get("iss") != self.issuer:
            return "it is of another issuer"
        subject = claims.get("sub", claims.get("username"))
        if not isinstance(subject, str) or not subject:
            return "it does not say whose it is"        # all such would be the same principal
        if not _is_time(ends) or not _is_time(starts) or not starts - EARLY_SECONDS <= now < ends:
            return "it is not its time"
        # Who sends it would have to prove to have the key; a hook that sees headers cannot tell.
        return "it is bound to a key" if "cnf" in claims else ""

    def _refusal(self, status: int, message: str, error: str = "") -> HttpError:
        """basic/authorization/index §Scope Challenge Handling, RFC 9728 §5.1."""
        told = {"error": error, "scope": " ".join(self.scopes),
                "resource_metadata": well_known(self.resource, "oauth-protected-resource")}
        return HttpError(status, message, {"WWW-Authenticate": "Bearer " + ", ".join(
            f'{name}="{value}"' for name, value in told.items() if value)})


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12


def local_keys(keys: Message | Callable[[], Message], *, issuer: str, resource: str,
               scopes: Iterable[str] = (), clock: Callable[[], float] = time.time) -> Validator:
    """Make the hook for tokens that are JWTs: `keys` is the issuer's JWK set, or returns it.

    ES256 and RS256. Nothing is fetched: how keys get here is up to you.
    """
    if not issuer:
        raise ValueError("a token is believed from an issuer only: say which")
    return Validator(lambda token: verified(token, keys() if callable(keys) else keys), resource,
                     issuer, scopes, seconds=60, clock=clock)


def introspection(endpoint: str, client_id: str, client_secret: str, *, resource: str,
                  issuer: str = "", scopes: Iterable[str] = (), seconds: float = 10,
                  tls: Any = None, clock: Callable[[], float] = time.time) -> Validator:
    """Make the hook that asks the issuer about each token: RFC 7662.

    What it says is remembered for `seconds`: so long a token lives on that was taken back.
    """
    checked(endpoint, "the introspection endpoint")
    headers = {"Content-Type": "application/x-www-form-urlencoded",
               "Authorization": basic(client_id, client_secret)}

    def find(token: str) -> Message | None:
        try:
            answer = exchange("POST", endpoint, headers, urlencode({"token": token}).encode(), tls)
        except OAuthError:
            answer = Answer(503, {}, b"")
        claims = answer.json()
        if answer.status != 200 or claims is None:
            log(f"introspection: {place_of(endpoint)} answers {answer.status}")
            raise HttpError(503, "Tokens cannot be checked now", {"Retry-After": "5"})
        return claims if claims.get("active") is True else None
    return Validator(find, resource, issuer, scopes, seconds, clock=clock)


def verified(token: str, keys: Message) -> Message | None:
    """Return the claims of a JWT that one of these keys has signed; None if none has.

    The key decides on the algorithm, not the token (RFC 8725 §3.1).
    """
    try:
        head, body, signature = token.split(".")
        header, claims = json.loads(unb64(head)), json.loads(unb64(body))
        signed, given = f"{head}.{body}".encode(), unb64(signature)
        kind = str(header.get("typ", "JWT")).lower().replace("application/", "")
        if not isinstance(claims, dict) or "crit" in header or kind not in ("jwt", "at+jwt"):
            return None                 # RFC 8725 §3.11: a JWT made for something else
        for key in keys["keys"]:
            if _has_signed(key, header, signed, given):
                return claims
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None


def _has_signed(key: Message, header: Message, signed: bytes, signature: bytes) -> bool:
    """Tell whether this key, which may be of any kind, has signed."""
    try:
        check = _ALGORITHMS.get("{} {}".format(key.get("kty"), header.get("alg")))
        return check is not None and key.get("use", "sig") == "sig" \
            and header.get("kid", key.get("kid")) == key.get("kid") \
            and check(key, signed, signature)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False                    # an odd key: others may be good


def _is_es256(key: Message, signed: bytes, signature: bytes) -> bool:
    """Check a signature on P-256: FIPS 186-4 §6.4."""
    point = tuple(int.from_bytes(unb64(key[name]), "big") for name in "xy")
    r, s = (int.from_bytes(signature[start:start + 32], "big") for start in (0, 32))
    if key.get("crv") != "P-256" or len(signature) != 64 or not _is_on_curve(point) \
            or not 0 < r < _N or not 0 < s < _N:
        return False
    inverse = pow(s, -1, _N)
    digest = int.from_bytes(hashlib.sha256(signed).digest(), "big")
    found = _add(_times(digest * inverse % _N, _G), _times(r * inverse % _N, point))
    return found is not None and found[0] % _N == r


def _is_rs256(key: Message, signed: bytes, signature: bytes) -> bool:
    """Check an RSA signature: RFC 8017 §8.2.2, by making what it has to be, to the last byte."""
    modulus, exponent = (int.from_bytes(unb64(key[name]), "big") for name in "ne")
    size = (modulus.bit_length() + 7) // 8
    if size < 256 or size > 1024 or exponent < 3 or exponent % 2 == 0 or exponent > 2**32 \
            or len(signature) != size or int.from_bytes(signature, "big") >= modulus:
        return False
    digest = bytes.fromhex("3031300d060960864801650304020105000420") \
        + hashlib.sha256(signed).digest()
    wanted = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
    return pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(size, "big") == wanted


_ALGORITHMS = {"EC ES256": _is_es256, "RSA RS256": _is_rs256}


# ==========================================================================================
# 10. As a program
# ==========================================================================================

def main(words: list[str]) -> None:
    """Log in to a server, and list its tools; --forget throws its tokens away."""
    import argparse
    parser = argparse.ArgumentParser(prog="oauth.py", description=main.__doc__)
    parser.add_argument("url")
    parser.add_argument("--client-id", default="", help="of a client that was registered by hand")
    parser.add_argument("--secret-file", type=Path, help="its secret: a file with one line")
    parser.add_argument("--issuer", default="", help="whom it was registered with")
    parser.add_argument("--redirect-uri", default="", help="that it was registered with")
    parser.add_argument("--scope", default="", help="to ask for besides what the server wants")
    parser.add_argument("--tokens", type=Path, default=Path("~/.mcp_ref/tokens.json"),
                        help="the file to keep tokens in (%(default)s)")
    parser.add_argument("--forget", action="store_true", help="forget all tokens for this server")
    chosen = parser.parse_args(words)
    try:
        run(chosen)
    except (HttpError, RpcError, Malformed, OSError, ValueError) as problem:
        raise SystemExit(f"oauth.py: {problem}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def run(chosen: Any) -> None:
    """Do what the command line says."""
    store = TokenFile(chosen.tokens)
    if chosen.forget:
        with store:
            entries = store.read()
            store.write({name: entry for name, entry in entries.items() if not (
                name.startswith("token ") and origin_of(name.split()[3]) == origin_of(chosen.url))})
        return
    secret = chosen.secret_file.read_text().strip() if chosen.secret_file else ""
    oauth = OAuth(chosen.client_id, secret, issuer=chosen.issuer, scope=chosen.scope, store=store,
                  browser=Browser(chosen.redirect_uri))
    with connect(chosen.url, authorize=oauth) as client:
        for tool in client.list_tools():
            print(plain(tool["name"]), "-", plain(tool.get("description", "").partition("\n")[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
