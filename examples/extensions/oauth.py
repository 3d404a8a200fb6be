"""Log in to a protected MCP server: the client side of OAuth 2.1 authorization.

    hook = OAuth(store=TokenFile())
    with connect("https://mcp.example.com/mcp", authorize=hook) as client:
        print(client.list_tools())

When the server answers 401 or 403, the client calls the OAuth object with the HttpError
and repeats the request with the headers that it returns. The sections:

    1  HTTP           one function sends requests, one decides which URLs may be used
    2  signatures     with the `cryptography` package
    3  discovery      the challenge names the server's metadata, that the issuer, whose
                      metadata names its endpoints
    4  registration   the client's identity at an issuer: by hand, by document, dynamic
    5  the token file
    6  the hook       which token to use: a stored one, a refreshed one, or a new one
    7  grants         ways to get a token: a user, a secret, a workload, an enterprise
    8  the browser    where a user logs in, and the port that the browser returns to

URLs must be https, or http on this machine; redirects are not followed; a token is sent
only to the origin that it was issued for; messages and logs contain no token, code or
secret. Known limits: keys are P-256; certificates are verified against the platform's
store (or SSL_CERT_FILE); where a host is, is judged by its name or address, not by what
a resolver says.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote_plus, urlencode, urljoin, urlsplit

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import Malformed, connect, fetch

from mcp_ref import HttpError

Message = dict[str, Any]

FETCH_SECONDS = 30  # for one answer, and all of them if the client does not say
EARLY_SECONDS = 30  # how long before its expiry a stored token is refreshed
ASSERTION_SECONDS = 120  # validity of an assertion that we sign


class OAuthError(HttpError):
    """Authorization failed. `code`: the authorization server's error, such as
    "invalid_grant"."""

    def __init__(self, message: str, status: int = 401, code: str = "") -> None:
        super().__init__(status, message)
        self.code = code


# ==== 1. HTTP =========================================================================


class Budget(threading.local):
    """The end of the time that machines have for a login, on each thread. While a
    person acts, it moves."""

    until = float("inf")


_budget = Budget()


def fetch_json(
    verb: str,
    url: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, dict[str, str], Message]:
    """Fetch a JSON object; return status, headers and the object, {} if it is anything
    else.

    Raises OAuthError if the server cannot be reached, or for a status of 500 or above.
    """
    headers = {"Accept": "application/json", "User-Agent": "mcp_ref", **(headers or {})}
    left = _budget.until - time.monotonic()
    if left <= 0:
        raise OAuthError(f"{shown(url)}: there is no time left to ask it")
    try:
        status, answered, content = fetch(
            verb, url, headers, body, timeout=min(left, FETCH_SECONDS)
        )
    except (OSError, ValueError, Malformed) as problem:
        raise OAuthError(f"{shown(url)} cannot be reached: {problem}") from None
    found = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
    if status >= 500:  # not "no metadata": that would lead to another issuer
        raise OAuthError(f"{shown(url)} answers {status}: try again later")
    return status, answered, found if isinstance(found, dict) else {}


def checked(url: Any, what: str, source: str = "") -> str:
    """Return a URL if it may be used: https, or http on this machine.

    `source` is the URL that named it: a remote one must not send us to a service on
    this machine. basic/authorization/security-considerations §Communication Security
    """
    try:
        scheme, host, _ = origin_of(url if re.fullmatch("[!$-~]+", url) else "")
    except (TypeError, ValueError):
        host = None
    place = place_of(host or "")
    if not host or not (
        scheme == "https" or (scheme == "http" and place == "this machine")
    ):
        raise OAuthError(
            f"{what} must be an https URL, or http on this machine: {shown(url)}"
        )
    # A page of the internet may name only what is there, too; one of a private network
    # may name others in it, but not what listens on this machine.
    allowed = PLACES.index(place_of(origin_of(source)[1] or "")) if source else 0
    if PLACES.index(place) < allowed:
        raise OAuthError(f"{what} is on {place}, but {shown(source)} is not")
    return str(url)


# From where a URL comes decides which hosts it may name: the same or a later one.
PLACES = ["this machine", "a private network", "the internet"]


def place_of(host: str) -> str:
    """Return where a host is, as far as its name or address tells.

    An address has many spellings: 127.1, 2130706433, 0x7f000001 and
    ::ffff:127.0.0.1 are all 127.0.0.1, and a name may end in a dot.
    """
    import ipaddress
    import socket

    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return PLACES[0]
    address: Any = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name.split("%")[0])
    if address is None:
        with contextlib.suppress(OSError, ValueError):  # what resolvers accept
            address = ipaddress.ip_address(socket.inet_aton(name))
    if address is None:
        return PLACES[2]

    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return PLACES[0]
    return PLACES[2] if address.is_global else PLACES[1]


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname,
        parts.port or {"https": 443, "http": 80}.get(parts.scheme),
    )


def shown(url: Any) -> str:
    """Return a URL for use in a message: without the query, which may contain
    secrets."""
    return plain(re.split("[?#]", str(url))[0])


def plain(said: Any) -> str:
    """Return text from the other side as one short line of ASCII."""
    return re.sub(r"[^ -~]+", " ", str(said)[:200]).strip()


def words(scopes: Any) -> list[str]:
    """Return the scopes in a string or a list, without invalid ones (RFC 6749 §3.3)."""
    found = scopes.split() if isinstance(scopes, str) else scopes
    return list(
        dict.fromkeys(
            one
            for one in (found if isinstance(found, list) else [])
            if isinstance(one, str) and re.fullmatch(r"[!#-\[\]-~]+", one)
        )
    )


# ==== 2. Signatures ===================================================================


def b64(content: bytes) -> str:
    """Encode as base64url without padding, as JWTs do."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Key:
    """A P-256 private key, as PEM, for assertions and DPoP. `ident`: its `kid`, if
    any."""

    def __init__(self, pem: str, ident: str = "") -> None:
        self.pem, self.ident = pem, ident

    def jwk(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key."""
        _, _, serialization, _ = _cryptography()
        key = serialization.load_pem_private_key(self.pem.encode(), None)
        point = key.public_key().public_numbers()
        return {
            "crv": "P-256",
            "kty": "EC",
            "x": b64(point.x.to_bytes(32, "big")),
            "y": b64(point.y.to_bytes(32, "big")),
        }

    def jwt(self, claims: Message, **header: Any) -> str:
        """Make a token signed with ES256."""
        ec, hashes, serialization, utils = _cryptography()
        key = serialization.load_pem_private_key(self.pem.encode(), None)
        header = {
            "alg": "ES256",
            **({"kid": self.ident} if self.ident else {}),
            **header,
        }
        signed = ".".join(b64(json.dumps(part).encode()) for part in (header, claims))
        pair = utils.decode_dss_signature(
            key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
        )
        return f"{signed}.{b64(b''.join(one.to_bytes(32, 'big') for one in pair))}"


def new_pem() -> str:
    """Make a private key; return it as PEM."""
    ec, _, serialization, _ = _cryptography()
    key = ec.generate_private_key(ec.SECP256R1())
    return str(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        "ascii",
    )


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, utils
    except ImportError:
        raise OAuthError(
            "signing needs the package 'cryptography': pip install cryptography"
        ) from None
    return ec, hashes, serialization, utils


# ==== 3. Discovery ====================================================================

# RFC 9110 §11.6.1: a word followed by "=" and a value is a parameter, any other word is
# a scheme. A misplaced quoted string is skipped.
CHALLENGE = re.compile(
    r"""([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))"""
    r"""|([\w!#$%&'*+.^`|~-]+)|"(?:[^"\\]|\\.)*\""""
)


class Source(NamedTuple):
    """Where the tokens for a server come from."""

    issuer: str
    resource: str  # the server's URL, spelled as in its metadata
    metadata: Message  # the issuer's
    scopes: list[str]  # those listed in the server's metadata
    dpop: bool  # whether tokens must be bound to a key


def challenges(header: str) -> dict[str, dict[str, str]]:
    """Parse a WWW-Authenticate header: return parameters by scheme.

    Names are in lower case; of several with the same name, the first counts.
    """
    found: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}
    for name, quoted, bare, scheme in CHALLENGE.findall(header[:8192]):
        if scheme:
            parameters = {}
            found.setdefault(scheme.lower(), parameters)
        else:
            parameters.setdefault(name.lower(), bare or re.sub(r"\\(.)", r"\1", quoted))
    return found


def well_known(url: str, name: str) -> str:
    """Return a metadata URL: /.well-known/NAME between host and path (RFC 8414
    §3.1)."""
    parts = urlsplit(url)
    return parts._replace(path=f"/.well-known/{name}{parts.path.rstrip('/')}").geturl()


def discover(url: str, told: str = "", preferred: str = "") -> Source:
    """Find out who issues tokens for a server.

    `told`: the metadata URL in the challenge. `preferred`: the issuer to use if it is
    listed.
    """
    found = resource_metadata(url, told)
    if not found:
        # [2025-03-26] basic/authorization §Authorization Base URL, §Fallbacks for
        # Servers without Metadata Discovery: the server's origin issues tokens; without
        # metadata, at fixed paths.
        origin = urljoin(url, "/").rstrip("/")
        return Source(
            origin,
            url,
            issuer_metadata(origin)
            or {
                "authorization_endpoint": origin + "/authorize",
                "token_endpoint": origin + "/token",
                "registration_endpoint": origin + "/register",
                "code_challenge_methods_supported": ["S256"],
            },
            [],
            False,
        )
    servers = found.get("authorization_servers")
    if not isinstance(servers, list) or not servers:
        raise OAuthError(f"the metadata of {shown(url)} names no authorization server")
    issuer = checked(
        preferred if preferred in servers else servers[0],
        "the authorization server",
        url,
    )
    metadata = issuer_metadata(issuer)
    if not metadata:
        raise OAuthError(f"the authorization server {shown(issuer)} has no metadata")
    return Source(
        issuer,
        found["resource"],
        metadata,
        words(found.get("scopes_supported")),
        found.get("dpop_bound_access_tokens_required") is True,
    )


def resource_metadata(url: str, told: str = "") -> Message:
    """Get the metadata of the server at `url`; {} if it has none.

    basic/authorization/authorization-server-discovery §Protected Resource Metadata
    Discovery Requirements: at the URL in the challenge; without one, first for the
    path, then for the root.
    """
    for place in (
        [told]
        if told
        else [
            well_known(one, "oauth-protected-resource")
            for one in (url, urljoin(url, "/"))
        ]
    ):
        status, _, found = fetch_json("GET", checked(place, "resource_metadata", url))
        if status == 200 and found:
            # RFC 9728 §3.3: request no token for another server. A resource includes
            # the paths below its own.
            resource = checked(found.get("resource"), "the resource in the metadata")
            path = urlsplit(resource).path.rstrip("/") + "/"
            below = (urlsplit(url).path + "/").startswith(path)
            if origin_of(resource) != origin_of(url) or not below:
                raise OAuthError(
                    f"the metadata is about {shown(resource)}, not {shown(url)}"
                )
            return found
    if told:
        raise OAuthError(
            f"no metadata at {shown(told)}, the URL in the server's challenge"
        )
    return {}


def issuer_metadata(issuer: str) -> Message:
    """Get the metadata of an authorization server; {} if it has none.

    basic/authorization/authorization-server-discovery §Authorization Server Metadata
    Discovery: it must name this exact issuer, compared as a string; otherwise it
    belongs to another one.
    """
    places = [
        well_known(issuer, "oauth-authorization-server"),
        well_known(issuer, "openid-configuration"),
        issuer.rstrip("/") + "/.well-known/openid-configuration",
    ]
    for place in dict.fromkeys(places):
        status, _, found = fetch_json("GET", place)
        if status == 200 and found:
            if found.get("issuer") != issuer:
                raise OAuthError(
                    f"the metadata at {shown(place)} is about "
                    f"{shown(found.get('issuer'))}, not {shown(issuer)}"
                )
            return found
    return {}


# ==== 4. Registration =================================================================

# Issuers built with the official Python SDK offer both, but refuse Basic unless the
# form has the client_id as well, which strict issuers refuse.
SECRET_METHODS = ["client_secret_post", "client_secret_basic"]


class Registration(NamedTuple):
    """A client's identity at an issuer, and how it authenticates at the token
    endpoint."""

    client_id: str
    secret: str = ""
    method: str = "none"  # or one of SECRET_METHODS, or private_key_jwt
    redirect_uri: str = ""  # the registered one; "": any


def choose_method(metadata: Message, usable: list[str], default: str) -> str:
    """Choose from `usable` how to authenticate at the token endpoint (RFC 8414 §2)."""
    offered = metadata.get("token_endpoint_auth_methods_supported") or [default]
    for method in usable:
        if isinstance(offered, list) and method in offered:
            return method
    raise OAuthError(
        f"the token endpoint accepts none of {', '.join(usable)}; it accepts "
        + plain(offered)
    )


def register(source: Source, redirect_uri: str, name: str) -> Registration:
    """Register: basic/authorization/client-registration §Dynamic Client
    Registration."""
    endpoint = source.metadata.get("registration_endpoint")
    if endpoint is None:
        raise OAuthError(
            f"{shown(source.issuer)} does not support dynamic registration: register "
            "a client by hand and pass its client_id"
        )
    checked(endpoint, "registration_endpoint", source.issuer)
    method = choose_method(source.metadata, ["none", *SECRET_METHODS], "none")
    local = place_of(origin_of(redirect_uri)[1] or "") == PLACES[0]
    body = json.dumps(
        {  # ... §Application Type and Redirect URI Constraints
            "client_name": name,
            "redirect_uris": [redirect_uri],
            "response_types": ["code"],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": method,
            "application_type": "native" if local else "web",
        }
    )
    status, _, made = fetch_json(
        "POST", endpoint, {"Content-Type": "application/json"}, body.encode()
    )
    ident, secret = made.get("client_id"), made.get("client_secret") or ""
    if (
        status not in (200, 201)
        or not isinstance(ident, str)
        or not isinstance(secret, str)
    ):
        raise refused(endpoint, status, made)
    method = made.get("token_endpoint_auth_method") or method
    if secret and method not in SECRET_METHODS:
        method = "client_secret_basic"
    return Registration(ident, secret, method if secret else "none", redirect_uri)


def refused(endpoint: str, status: int, answer: Message) -> OAuthError:
    """Return the exception for an issuer's refusal."""
    error = str(answer.get("error", ""))
    told = plain(f"{status} {error} {answer.get('error_description', '')}")
    return OAuthError(f"{shown(endpoint)} refuses: {told}", code=error)


# ==== 5. The token file ===============================================================


class TokenFile:
    """A store in a file that only its owner can read. (A dict is a store in memory.)"""

    def __init__(self, path: str | os.PathLike[str] = "~/.mcp_ref/tokens.json") -> None:
        self.path = Path(path).expanduser()
        self._mine = threading.RLock()  # guards _depth
        self._depth = 0  # how many times this thread is inside locked()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other threads and programs from changing the file meanwhile."""
        with self._mine, contextlib.ExitStack() as stack:
            if not self._depth:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = stack.enter_context(open(f"{self.path}.lock", "ab"))
                lock_file(file)  # until it is closed
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def get(self, name: str) -> Message | None:
        return self._read().get(name)

    def __setitem__(self, name: str, entry: Message) -> None:
        # renamed: a crash leaves no partial file
        fresh = f"{self.path}.{b64(os.urandom(6))}"
        with self.locked():
            content = {**self._read(), name: entry}
            with open(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                json.dump(content, file, indent=1)
            os.replace(fresh, self.path)

    def _read(self) -> Message:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if os.name == "posix" and (
                    status.st_mode & 0o077 or status.st_uid != os.getuid()
                ):
                    raise OAuthError(
                        f"others can read {self.path}: chmod 600 it, or delete it"
                    )
                return dict(json.load(file))
        except FileNotFoundError:
            return {}
        except (TypeError, ValueError, RecursionError):
            raise OAuthError(f"{self.path} is not a token file: delete it") from None


def lock_file(file: Any) -> None:
    """Wait until no other program has this file locked, and lock it."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    else:
        import msvcrt

        lock = vars(msvcrt)  # mypy knows only this platform's modules
        file.seek(0)
        end = time.monotonic() + 60
        while True:
            try:  # LK_LOCK tries once a second, and gives up after ten times
                lock["locking"](file.fileno(), lock["LK_NBLCK"], 1)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


# ==== 6. The hook =====================================================================


class OAuth:
    """An `authorize` hook for connect(), for one server.

    `client_id`, `client_secret`, `key`: a client that was registered by hand; give its
    `issuer` if you know it, otherwise the client is bound to the first one that the
    server names. `metadata_url`: a client ID metadata document that you host. Without
    either, the client is registered dynamically as `name`. `grant`: how to get a token.
    `store`: where to keep it, a TokenFile or a dict. `scope`: scopes to request in
    addition to those the server asks for. `dpop`: bind tokens to a key even if the
    server does not require it. `clock`: returns seconds since 1970.
    """

    def __init__(
        self,
        client_id: str = "",
        client_secret: str = "",
        *,
        issuer: str = "",
        key: Key | None = None,
        metadata_url: str = "",
        name: str = "mcp_ref",
        scope: str = "",
        grant: Any = None,
        store: dict[str, Message] | TokenFile | None = None,
        dpop: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if metadata_url and not re.match("https://[^/]+/.", metadata_url):
            raise ValueError("metadata_url must be an https URL with a path")
        self.client_id, self._secret, self.issuer, self.key = (
            client_id,
            client_secret,
            issuer,
            key,
        )
        self.metadata_url, self.name, self.scope = metadata_url, name, scope
        self.grant, self.dpop, self.clock = grant or AuthorizationCode(), dpop, clock
        self.store = {} if store is None else store
        # store key
        self._name = f"{type(self.grant).__name__} {client_id or metadata_url}"
        self._lock = threading.Lock()  # one login at a time
        self._used: Message = {}  # the token in the headers
        self._uses = 0  # number of requests sent with it
        self._nonces: dict[Any, str] = {}  # DPoP nonces, by origin

    def __call__(
        self, refusal: HttpError
    ) -> Callable[[str, str], dict[str, str]] | None:
        """Return the function that makes each request's headers; None if no token would
        help."""
        with self._lock:
            # The client says how much of the caller's time is left.
            seconds = getattr(refusal, "seconds", FETCH_SECONDS)
            _budget.until = time.monotonic() + seconds
            url = checked(refusal.url, "the server")
            found = challenges(refusal.headers.get("www-authenticate", ""))
            bound = "dpop" in found and (self.dpop or "bearer" not in found)
            challenge = found.get("dpop" if bound else "bearer", {})
            if refusal.status == 403 and challenge.get("error") != "insufficient_scope":
                return None
            source = discover(url, challenge.get("resource_metadata", ""), self.issuer)
            source = source._replace(dpop=source.dpop or self.dpop or bound)
            if source.dpop:
                _cryptography()  # fail before the user logs in
            if not (
                self._note_nonce(url, refusal.headers)
                and self._used
                and challenge.get("error") == "use_dpop_nonce"
            ):
                self._used = self._token_for(
                    source, words(challenge.get("scope")), refusal.status
                )
            return self._headers(url, self._used)

    def _headers(
        self, url: str, token: Message
    ) -> Callable[[str, str], dict[str, str]]:
        def headers(verb: str, target: str) -> dict[str, str]:
            if origin_of(target) != origin_of(url):
                return {}
            self._uses += 1
            made = {"Authorization": f"{token['type']} {token['value']}"}
            if token["type"] == "DPoP":
                made["DPoP"] = self._prove(verb, target, token["value"])
            return made

        return headers

    def _entry(self, source: Source) -> Message:
        """Return what is stored for this server: issuer, client and token.

        basic/authorization/client-registration §Authorization Server Binding:
        credentials from one issuer are never sent to another.
        """
        entry = self.store.get(f"{self._name} {source.resource}") or {}
        bound = self.issuer or self.client_id and entry.get("issuer")
        if bound and bound != source.issuer:
            raise OAuthError(
                f"the client is registered with {shown(bound)}, but the server now "
                f"names {shown(source.issuer)}: register with that issuer"
            )
        return (
            entry if entry.get("issuer") == source.issuer else {"issuer": source.issuer}
        )

    def keep(self, source: Source, **changes: Any) -> None:
        """Change what is stored for this server."""
        self.store[f"{self._name} {source.resource}"] = {
            **self._entry(source),
            **changes,
        }

    def _token_for(self, source: Source, wanted: list[str], status: int) -> Message:
        """Return a stored, refreshed or new token: {value, type, refresh, until,
        asked}."""
        token = self._entry(source).get("token") or {}
        asked, own = words(token.get("asked")), words(self.scope)
        if token and {*wanted, *own} <= set(asked):
            expired = (
                bool(token["until"]) and self.clock() > token["until"] - EARLY_SECONDS
            )
            if token["value"] != self._used.get("value"):
                if not expired:
                    self._uses = 1  # by the object or program that stored it
                    return token
            elif status == 403:
                raise OAuthError(
                    "the server wants more scope, but the token that it refused was "
                    f"requested with '{plain(' '.join(wanted))}'",
                    403,
                )
            elif self._uses == 1 and not expired:
                self._uses = 2  # the next request may get a new token
                raise OAuthError(
                    "the server refused a token that was just obtained for it"
                )
            refreshed = self._refreshed(source, token, asked)
            if refreshed:
                return refreshed
        # basic/authorization/index §Scope Selection Strategy; §Step-Up Authorization
        # Flow: scopes that were requested before are requested again.
        listed = [] if wanted or asked else source.scopes
        scopes = words([*asked, *wanted, *listed, *own])
        client, form = self.grant.form(self, source, scopes)
        return self._new_token(source, client, form, scopes)

    def _refreshed(
        self, source: Source, token: Message, asked: list[str]
    ) -> Message | None:
        """Refresh a token, or take the one that another program has got meanwhile: a
        refresh token is often good for once. None if the user must log in again."""
        with contextlib.ExitStack() as stack:
            if isinstance(self.store, TokenFile):
                stack.enter_context(self.store.locked())
            newer: Message = self._entry(source).get("token") or {}
            if newer and newer["value"] != token["value"]:
                self._uses = 1
                return newer
            client = self.registered(source)
            if not client or not token["refresh"]:
                return None
            form = {"grant_type": "refresh_token", "refresh_token": token["refresh"]}
            try:
                return self._new_token(source, client, form, asked)
            except OAuthError as problem:
                if problem.code not in ("invalid_grant", "invalid_client"):
                    raise
        return None

    def registered(self, source: Source) -> Registration | None:
        """Return our registration with this issuer; None if there is none yet."""
        entry = self._entry(source)
        if self.client_id:
            # It may have been registered for only one method: probably the issuer's
            # first.
            theirs = words(source.metadata.get("token_endpoint_auth_methods_supported"))
            secret = sorted(SECRET_METHODS, key=lambda one: [*theirs, one].index(one))
            usable = (["private_key_jwt"] if self.key else []) + secret
            method = (
                choose_method(source.metadata, usable, "client_secret_basic")
                if self._secret
                else "private_key_jwt"
                if self.key
                else "none"
            )
            return Registration(self.client_id, self._secret, method)
        if self.metadata_url and source.metadata.get(
            "client_id_metadata_document_supported"
        ):
            return Registration(
                self.metadata_url, "", "private_key_jwt" if self.key else "none"
            )
        return Registration(*entry["client"]) if entry.get("client") else None

    def _new_token(
        self, source: Source, client: Registration, form: Message, scopes: list[str]
    ) -> Message:
        """Request a token and store it."""
        endpoint = checked(
            source.metadata.get("token_endpoint"), "token_endpoint", source.issuer
        )
        # basic/authorization/index §Resource Parameter Implementation
        form = {**form, "resource": source.resource}
        headers = self._authenticate(source, client, form)
        try:
            made = self.post(endpoint, form, headers, source.dpop)
        except OAuthError as problem:
            if problem.code == "invalid_client":  # the next request registers again
                self.keep(source, client=None)
            raise
        value, kind = made.get("access_token"), "DPoP" if source.dpop else "Bearer"
        if (
            not isinstance(value, str)
            or not re.fullmatch("[!-~]+", value)
            or str(made.get("token_type")).lower() != kind.lower()
        ):
            raise OAuthError(f"{shown(endpoint)} returned no usable {kind} token")
        seconds = str(made.get("expires_in"))
        token = {
            "value": value,
            "type": kind,
            "asked": scopes,
            "refresh": made.get("refresh_token") or form.get("refresh_token"),
            "until": self.clock() + float(seconds) if seconds.isdecimal() else None,
        }
        self.keep(source, token=token)
        self._uses = 0
        return token

    def _authenticate(
        self, source: Source, client: Registration, form: Message
    ) -> dict[str, str]:
        """Authenticate the client: add credentials to the form, or return them as
        headers."""
        if client.method == "client_secret_basic":  # RFC 6749 §2.3.1
            pair = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
            return {
                "Authorization": "Basic " + base64.b64encode(pair.encode()).decode()
            }
        form["client_id"] = client.client_id
        if client.method == "client_secret_post":
            form["client_secret"] = client.secret
        elif client.method == "private_key_jwt" and self.key:
            now = int(self.clock())  # RFC 7523 §3
            form["client_assertion_type"] = CLIENT_ASSERTION
            form["client_assertion"] = self.key.jwt(
                {
                    "iss": client.client_id,
                    "sub": client.client_id,
                    "aud": source.issuer,
                    "iat": now,
                    "exp": now + ASSERTION_SECONDS,
                    "jti": b64(os.urandom(16)),
                }
            )
        return {}

    def post(
        self, endpoint: str, form: Message, headers: dict[str, str], dpop: bool
    ) -> Message:
        """Post a form to a token endpoint; OAuthError if it refuses."""
        body = urlencode(
            {name: value for name, value in form.items() if value}
        ).encode()
        headers = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        for _ in range(2):
            if dpop:
                headers["DPoP"] = self._prove("POST", endpoint)
            status, answered, made = fetch_json("POST", endpoint, headers, body)
            # RFC 9449 §8: the server may refuse the first proof to supply a nonce for
            # the second.
            if not (
                self._note_nonce(endpoint, answered)
                and made.get("error") == "use_dpop_nonce"
            ):
                break
        if status != 200 or made.get("error"):
            raise refused(endpoint, status, made)
        return made

    def _prove(self, verb: str, url: str, token: str = "") -> str:
        """Make the DPoP proof for one request (RFC 9449 §4.2)."""
        kept = self.store.get("dpop")
        if not kept:  # stored, because stored tokens are bound to it
            kept = self.store["dpop"] = {"pem": new_pem()}
        key = Key(kept["pem"])
        claims = {
            "jti": b64(os.urandom(16)),
            "htm": verb,
            "htu": re.split("[?#]", url)[0],
            "iat": int(self.clock()),
            "nonce": self._nonces.get(origin_of(url)),
            "ath": b64(hashlib.sha256(token.encode()).digest()) if token else None,
        }
        return key.jwt(
            {name: value for name, value in claims.items() if value},
            typ="dpop+jwt",
            jwk=key.jwk(),
        )

    def _note_nonce(self, url: str, headers: dict[str, str]) -> bool:
        """Store the nonce that an origin requires in the next proof; tell whether it is
        new."""
        nonce, before = headers.get("dpop-nonce"), self._nonces.get(origin_of(url))
        if nonce:
            self._nonces[origin_of(url)] = nonce
        return bool(nonce) and nonce != before


# ==== 7. Grants =======================================================================
#
# form() returns our registration and what to post to the token endpoint.

CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:"
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"


class AuthorizationCode:
    """Have a user log in with a browser: basic/authorization/index §Authorization Flow
    Steps."""

    def __init__(self, browser: Browser | None = None) -> None:
        self.browser = browser or Browser()

    def form(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        endpoint = checked(
            source.metadata.get("authorization_endpoint"),
            "authorization_endpoint",
            source.issuer,
        )
        offered = source.metadata.get("code_challenge_methods_supported")
        if not isinstance(offered, list) or "S256" not in offered:
            # .../security-considerations §Authorization Code Protection
            raise OAuthError(f"{shown(source.issuer)} does not offer PKCE with S256")
        verifier, state = b64(os.urandom(48)), b64(os.urandom(24))
        query = {
            "response_type": "code",
            "state": state,
            "resource": source.resource,
            "code_challenge": b64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        if scopes and "offline_access" in words(
            source.metadata.get("scopes_supported")
        ):
            # .../index §Refresh Tokens; OpenID Connect requires consent for it
            scopes = words([*scopes, "offline_access"])
            query["prompt"] = "consent"
        if scopes:
            query["scope"] = " ".join(scopes)
        client = oauth.registered(source)
        with self.browser.listen(client.redirect_uri if client else "", state) as uri:
            if client is None or client.redirect_uri not in ("", uri):
                client = register(source, uri, oauth.name)
                oauth.keep(source, client=client)
            query.update(client_id=client.client_id, redirect_uri=uri)
            joint = "&" if "?" in endpoint else "?"
            start = time.monotonic()
            address = self.browser.visit(endpoint + joint + urlencode(query))
            _budget.until += time.monotonic() - start
        return client, {
            "grant_type": "authorization_code",
            "redirect_uri": uri,
            "code": code_in(address, source, state),
            "code_verifier": verifier,
        }


def code_in(address: str, source: Source, state: str) -> str:
    """Return the code in the address that the browser was redirected to.

    basic/authorization/index §Authorization Response Validation: nothing in it is used,
    not even an error, before it is known to come from the issuer that we asked.
    """
    came = dict(parse_qsl(urlsplit(address).query, keep_blank_values=True))
    if came.get("state") != state:
        raise OAuthError(
            "the browser returned with the answer to another request: log in again"
        )
    announced = (
        source.metadata.get("authorization_response_iss_parameter_supported") is True
    )
    if came.get("iss", None if announced else source.issuer) != source.issuer:
        raise OAuthError(
            "the browser returned with the answer of another issuer, or of none: "
            f"expected {shown(source.issuer)}; log in again"
        )
    if "error" in came or not came.get("code"):
        told = f"{came.get('error', 'no code')} {came.get('error_description', '')}"
        raise OAuthError(f"the login failed: {plain(told)}", code=came.get("error", ""))
    return came["code"]


class ClientCredentials:
    """Log a program in as itself, by secret or key: ext-auth,
    oauth-client-credentials."""

    def form(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        client = oauth.registered(source)
        if client is None or client.method == "none":
            raise OAuthError(
                "client credentials require a client_id, and a client_secret or key"
            )
        return client, {"grant_type": "client_credentials", "scope": " ".join(scopes)}


class Workload:
    """Log a workload in with its platform's JWT (RFC 7523 §2.1), from
    `assertion(issuer)`."""

    def __init__(self, assertion: Callable[[str], str]) -> None:
        self.assertion = assertion

    def form(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        return oauth.registered(source) or Registration(""), {
            "grant_type": GRANT_TYPE + "jwt-bearer",
            "scope": " ".join(scopes),
            "assertion": self.assertion(source.issuer),
        }


class EnterpriseManaged:
    """Log in through a company's identity provider: ext-auth,
    enterprise-managed-authorization.

    `identity()` returns the ID token of the user's single sign-on. It is exchanged at
    `endpoint`, the provider's token endpoint, for a grant for this server only.
    """

    def __init__(
        self,
        endpoint: str,
        identity: Callable[[], str],
        client_id: str,
        client_secret: str = "",
    ) -> None:
        self.endpoint = checked(endpoint, "the identity provider's token endpoint")
        self.identity, self.client_id, self._secret = identity, client_id, client_secret

    def form(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        scope = " ".join(scopes)
        made = oauth.post(
            self.endpoint,
            {
                "grant_type": GRANT_TYPE + "token-exchange",
                "scope": scope,
                "audience": source.issuer,
                "resource": source.resource,
                "requested_token_type": TOKEN_TYPE + "id-jag",
                "subject_token": self.identity(),
                "subject_token_type": TOKEN_TYPE + "id_token",
                "client_id": self.client_id,
                "client_secret": self._secret,
            },
            {},
            False,
        )
        if made.get("issued_token_type") != TOKEN_TYPE + "id-jag":
            raise OAuthError(
                f"{shown(self.endpoint)} returned no grant for this server"
            )
        return oauth.registered(source) or Registration(""), {
            "grant_type": GRANT_TYPE + "jwt-bearer",
            "scope": scope,
            "assertion": made.get("access_token"),
        }


# ==== 8. The browser ==================================================================
#
# RFC 8252 §7.3: the browser is redirected to a port on this machine, open only during
# the login. Any page or program can also send requests there: only a request with our
# `state` counts.


class Browser:
    """Where a user logs in. `redirect_uri`: a fixed one, if the client was registered
    with it.

    `seconds`: the time a user has. A subclass without a browser overrides listen() and
    visit().
    """

    def __init__(self, redirect_uri: str = "", seconds: float = 300) -> None:
        self.redirect_uri, self.seconds = redirect_uri, seconds
        self._server: Any = None

    @contextlib.contextmanager
    def listen(self, registered: str, state: str) -> Iterator[str]:
        """Open a port for the login, the registered one if it is free; yield the
        redirect URI."""
        parts = urlsplit(
            self.redirect_uri or registered or "http://127.0.0.1:0/callback"
        )
        try:
            self._server = _landing(parts.port or 0, parts.path, state)
        except OSError:
            if self.redirect_uri:
                raise
            self._server = _landing(0, parts.path, state)
        with self._server:
            yield f"http://{parts.hostname}:{self._server.server_address[1]}{parts.path}"

    def visit(self, url: str) -> str:
        """Open a page for the user; return the address that the browser was redirected
        to."""
        import webbrowser

        def show(open_page: Callable[[str], Any]) -> None:
            if not open_page(url):
                print("Open this page to log in:", url, file=sys.stderr)

        # On a thread: one in the terminal returns only when its user leaves it.
        threading.Thread(target=show, args=[webbrowser.open], daemon=True).start()
        end = time.monotonic() + self.seconds
        # A connection has a thread, so that a slow one holds up nobody.
        while not self._server.address:
            left = end - time.monotonic()
            if left <= 0:
                raise OAuthError(
                    f"no login in the browser within {self.seconds:g} seconds"
                )
            self._server.timeout = min(left, 0.1)
            self._server.handle_request()
        return str(self._server.address)


def _landing(port: int, path: str, state: str) -> Any:
    """Make the HTTP server that the browser returns to."""
    from http.server import BaseHTTPRequestHandler
    from socketserver import TCPServer, ThreadingMixIn

    class Landing(ThreadingMixIn, TCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = os.name == "posix"
        address = ""  # the address that the browser was redirected to

    class Visit(BaseHTTPRequestHandler):
        timeout = 1  # browsers open connections that they do not use
        server: Landing

        def do_GET(self) -> None:
            came = urlsplit(self.path)
            known = came.path == (path or "/")
            known = known and ("state", state) in parse_qsl(came.query)
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(b"You can close this page." if known else b"Not found.")
            if known:
                self.server.address = self.path

        def log_message(self, *_: Any) -> None:
            """Log nothing: the address contains the code."""

    return Landing(("127.0.0.1", port), Visit)


if __name__ == "__main__":  # oauth.py URL: log in and list the tools
    with connect(sys.argv[1], authorize=OAuth(store=TokenFile())) as client:
        print(*(plain(tool["name"]) for tool in client.list_tools()), sep="\n")
