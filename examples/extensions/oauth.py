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
    9  settings       what a command line or a host's file says; logout()

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote_plus, urlencode, urljoin, urlsplit

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import Malformed, connect, fetch

from mcp_ref import HttpError, RpcError, decode, printable

Message = dict[str, Any]

MAX_DOCUMENT = 2**20  # bytes of one answer
FETCH_SECONDS = 30  # for one answer, and all of them if the client does not say
EARLY_SECONDS = 30  # how long before its expiry a stored token is refreshed
ASSERTION_SECONDS = 120  # validity of an assertion that we sign


class OAuthError(HttpError):
    """Authorization failed. `code`: the authorization server's error, such as
    "invalid_grant". `temporary`: it may succeed later; nothing is wrong with us."""

    def __init__(
        self, message: str, status: int = 401, code: str = "", temporary: bool = False
    ) -> None:
        super().__init__(status, message)
        self.code, self.temporary = code, temporary


class LoginNeeded(OAuthError):
    """A user must log in, and there is none."""


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
    else. Of a page that refuses, it has the title, as `message`.

    Raises OAuthError if the server cannot be reached, or for a status of 500 or above.
    """
    headers = {"Accept": "application/json", "User-Agent": "mcp_ref", **(headers or {})}
    left = _budget.until - time.monotonic()
    if left <= 0:
        raise OAuthError(
            f"{shown(url)}: there is no time left to ask it", temporary=True
        )
    try:
        status, answered, content = fetch(
            verb, url, headers, body, timeout=min(left, FETCH_SECONDS)
        )
    except (OSError, ValueError, Malformed) as problem:
        raise OAuthError(
            f"{shown(url)} cannot be reached: {problem}", temporary=True
        ) from None
    if len(content) > MAX_DOCUMENT:
        raise OAuthError(f"{shown(url)} sent more than {MAX_DOCUMENT} bytes")
    found = None
    with contextlib.suppress(RpcError):  # not JSON, or too much of it
        found = decode(content)
    if status >= 500:  # not "no metadata": that would lead to another issuer
        raise OAuthError(
            f"{shown(url)} answers {status}: try again later (this is temporary)",
            temporary=True,
        )
    if not isinstance(found, dict):
        found = {}
        title = re.search(rb"(?is)<title>(.{1,200}?)</title>", content[:5000])
        if status >= 400 and title:
            found["message"] = title[1].decode("utf-8", "replace")
    return status, answered, found


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
# a scheme. A misplaced quoted string is skipped; one that does not end takes the rest.
CHALLENGE = re.compile(
    r"""([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))"""
    r"""|([\w!#$%&'*+.^`|~-]+)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)""",
    re.DOTALL,
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
        elif name:
            parameters.setdefault(name.lower(), bare or re.sub(r"\\(.)", r"\1", quoted))
    return found


def well_known(url: str, name: str) -> str:
    """Return a metadata URL: /.well-known/NAME between host and path (RFC 8414
    §3.1)."""
    parts = urlsplit(url)
    return parts._replace(path=f"/.well-known/{name}{parts.path.rstrip('/')}").geturl()


def discover(
    url: str, told: str = "", preferred: str = "", endpoints: Message | None = None
) -> Source:
    """Find out who issues tokens for a server.

    `told`: the metadata URL in the challenge. `preferred`: the issuer to use if it is
    listed. `endpoints`: members of the issuer's metadata that the user knows, so that
    it is not asked.
    """
    found = resource_metadata(url, told)
    if endpoints:
        given = {"code_challenge_methods_supported": ["S256"], **endpoints}
        return Source(
            preferred or urljoin(str(given.get("token_endpoint")), "/").rstrip("/"),
            found.get("resource", url),
            given,
            words(found.get("scopes_supported")),
            found.get("dpop_bound_access_tokens_required") is True,
        )
    if not found:
        return _without_metadata(url)
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


def _without_metadata(url: str) -> Source:
    """Return the source for a server that has no metadata.

    [2025-03-26] basic/authorization §Authorization Base URL, §Fallbacks for Servers
    without Metadata Discovery: the server's origin issues tokens; without metadata, at
    fixed paths.
    """
    origin = urljoin(url, "/").rstrip("/")
    fixed = {
        "authorization_endpoint": origin + "/authorize",
        "token_endpoint": origin + "/token",
        "registration_endpoint": origin + "/register",
        "code_challenge_methods_supported": ["S256"],
    }
    return Source(origin, url, issuer_metadata(origin) or fixed, [], False)


def resource_metadata(url: str, told: str = "") -> Message:
    """Get the metadata of the server at `url`; {} if it has none.

    basic/authorization/authorization-server-discovery §Protected Resource Metadata
    Discovery Requirements: at the URL in the challenge; without one, or if there is
    nothing usable, first for the path, then for the root.
    """
    problem = None
    for place in (
        told,
        *(
            well_known(one, "oauth-protected-resource")
            for one in (url, urljoin(url, "/"))
        ),
    ):
        try:
            found = place and _resource_metadata_at(place, url)
        except OAuthError as failed:
            if place != told or failed.temporary:
                raise
            problem = failed
            continue
        if found:
            return found
        if place and place == told:
            problem = OAuthError(
                f"no metadata at {shown(told)}, the URL in the server's challenge"
            )
    if problem:
        raise problem
    return {}


def _resource_metadata_at(place: str, url: str) -> Message:
    """Get the metadata at one place; {} if there is none."""
    status, _, found = fetch_json("GET", checked(place, "resource_metadata", url))
    if status != 200 or not found:
        return {}
    # RFC 9728 §3.3: request no token for another server. A resource includes the paths
    # below its own.
    resource = checked(found.get("resource"), "the resource in the metadata")
    path = urlsplit(resource).path.rstrip("/") + "/"
    below = (urlsplit(url).path + "/").startswith(path)
    if origin_of(resource) != origin_of(url) or not below:
        raise OAuthError(f"the metadata is about {shown(resource)}, not {shown(url)}")
    return found


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
                raise _other_issuer(place, found.get("issuer"), issuer)
            return found
    return {}


def _other_issuer(place: str, found: Any, named: str) -> OAuthError:
    """Return the exception for metadata of another issuer.

    Often they differ by a slash at the end. The specification wants them identical, and
    tokens name the issuer as it calls itself; so it is the server that must change.
    """
    message = (
        f"the metadata at {shown(place)} is about {shown(found)}, not {shown(named)}"
    )
    if str(found).rstrip("/") == named.rstrip("/"):
        message += (
            ": they differ only by the slash at the end, but must be identical. The "
            f"operator of the MCP server must write {shown(found)} in the "
            "authorization_servers of its metadata. Until then, give a client id, the "
            "authorization endpoint and the token endpoint by hand (client_id, "
            "authorization_url and token_url)"
        )
    return OAuthError(message)


# ==== 4. Registration =================================================================

# Issuers built with the official Python SDK offer both, but refuse Basic unless the
# form has the client_id as well, which strict issuers refuse.
SECRET_METHODS = ["client_secret_post", "client_secret_basic"]
# Errors of an issuer that say nothing about us; and those of one that does not know our
# registration (any more): RFC 6749 §5.2, and what servers answer instead.
TEMPORARY = ("server_error", "temporarily_unavailable", "slow_down")
FORGOTTEN = ("invalid_client", "unauthorized_client", "invalid_request")


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


def register(
    source: Source, redirect_uri: str, name: str, *more_grants: str
) -> Registration:
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
            "grant_types": ["authorization_code", "refresh_token", *more_grants],
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
    told = made.get("token_endpoint_auth_method")
    method = told or method
    if secret and told != "none" and method not in SECRET_METHODS:
        method = "client_secret_basic"
    return Registration(ident, secret, method if secret else "none", redirect_uri)


def refused(endpoint: str, status: int, answer: Message) -> OAuthError:
    """Return the exception for an issuer's refusal."""
    error = str(answer.get("error", ""))
    said = answer.get("error_description") or answer.get("message", "")
    told = plain(" ".join(str(one) for one in (status, error, said) if one))
    temporary = status == 429 or error in TEMPORARY
    if temporary:
        told += " (this is temporary: try again later)"
    # Without an error it is not the endpoint that we registered with.
    code = error or ("unauthorized_client" if status in (401, 404, 410) else "")
    return OAuthError(
        f"{shown(endpoint)} refuses: {told}", code=code, temporary=temporary
    )


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
        with self.locked():
            self._write({**self._read(), name: entry})

    def pop(self, name: str, default: Any = None) -> Any:
        with self.locked():
            content = self._read()
            entry = content.pop(name, default)
            self._write(content)
        return entry

    def keys(self) -> list[str]:
        return list(self._read())

    def _write(self, content: Message) -> None:
        # renamed: a crash leaves no partial file
        fresh = f"{self.path}.{b64(os.urandom(6))}"
        try:
            with open(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                json.dump(content, file, indent=1)
            os.replace(fresh, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise

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

    `asked`: the user asks for a login, so one begins where a stored token cannot be
    renewed now. For issuers that are special: `endpoints`, members of its metadata, if
    it has none that can be used; `audience`, a parameter that some want;
    `send_resource=False`, for one that refuses the parameter that others need.

    What is kept for a server is stored under its own URL, so that a token is sent to no
    other server on the same origin: {issuer, client, token}, and `doubt` once a login
    with this client has not come back. A registration or a refresh token that is
    refused is replaced, once, by a new login, and kept until that has succeeded. A
    temporary failure replaces nothing.
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
        asked: bool = False,
        endpoints: Message | None = None,
        audience: str = "",
        send_resource: bool = True,
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
        self.asked, self.endpoints = asked, endpoints
        self.audience, self.send_resource = audience, send_resource
        # store key
        self._name = f"{type(self.grant).__name__} {client_id or metadata_url}"
        self._lock = threading.RLock()  # one login at a time
        self._used: Message = {}  # the token in the headers
        self._uses = 0  # number of requests sent with it
        self._tried: Message | None = None  # a token that was renewed in time, or not
        self._nonces: dict[Any, str] = {}  # DPoP nonces, by origin
        self._url = ""  # the server's
        self._forget = False  # a login registers the client anew
        self.said = ""  # why the server refused, in its words
        # where the token in use is from: "stored", "renewed" or "new"; "": none was
        # needed
        self.outcome = ""

    def __call__(
        self, refusal: HttpError
    ) -> Callable[[str, str], dict[str, str]] | None:
        """Return the function that makes each request's headers; None if no token would
        help."""
        with self._lock:
            # The client says how much of the caller's time is left.
            seconds = getattr(refusal, "seconds", FETCH_SECONDS)
            _budget.until = time.monotonic() + seconds
            url = self._url = checked(refusal.url, "the server")
            found = challenges(refusal.headers.get("www-authenticate", ""))
            bound = "dpop" in found and (self.dpop or "bearer" not in found)
            challenge = found.get("dpop" if bound else "bearer", {})
            self.said = plain(challenge.get("error_description", ""))
            if refusal.status == 403 and challenge.get("error") != "insufficient_scope":
                if self.said:
                    raise OAuthError(f"{shown(url)} refuses: {self.said}", 403)
                return None
            told = challenge.get("resource_metadata", "")
            source = discover(url, told, self.issuer, self.endpoints)
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
            return self._headers(url, source)

    def _headers(
        self, url: str, source: Source
    ) -> Callable[[str, str], dict[str, str]]:
        def headers(verb: str, target: str) -> dict[str, str]:
            if origin_of(target) != origin_of(url):
                return {}
            token = self._current(source)
            self._uses += 1
            made = {"Authorization": f"{token['type']} {token['value']}"}
            if token["type"] == "DPoP":
                made["DPoP"] = self._prove(verb, target, token["value"])
            return made

        return headers

    def _current(self, source: Source) -> Message:
        """Return the token in use, renewed if it is about to expire."""
        token = self._used
        if not self._is_due(token) or not token["refresh"] or self._tried is token:
            return token
        with self._lock:
            if self._used is token:  # else another thread has renewed it
                # If that fails, the server refuses the old one and so asks for more.
                self._tried = token
                _budget.until = time.monotonic() + FETCH_SECONDS
                with contextlib.suppress(OAuthError):
                    newer = self._refreshed(source, token, token["asked"])
                    self._used = newer or token
        return self._used

    def _is_due(self, token: Message) -> bool:
        """Tell whether a token has expired, or is about to."""
        return bool(token["until"]) and self.clock() > token["until"] - EARLY_SECONDS

    def _entry(self, source: Source) -> Message:
        """Return what is stored for this server: issuer, client and token.

        basic/authorization/client-registration §Authorization Server Binding:
        credentials from one issuer are never sent to another.
        """
        entry = self.store.get(self._key) or {}
        bound = self.issuer or self.client_id and entry.get("issuer")
        if bound and bound != source.issuer:
            raise OAuthError(
                f"the client is registered with {shown(bound)}, but the server now "
                f"names {shown(source.issuer)}: register with that issuer"
            )
        return (
            entry if entry.get("issuer") == source.issuer else {"issuer": source.issuer}
        )

    @property
    def _key(self) -> str:
        return f"{self._name} {store_url(self._url)}"

    def keep(self, source: Source, **changes: Any) -> None:
        """Change what is stored for this server."""
        self.store[self._key] = {**self._entry(source), **changes}

    def _token_for(self, source: Source, wanted: list[str], status: int) -> Message:
        """Return a stored, refreshed or new token: {value, type, refresh, until,
        asked}."""
        token = self._entry(source).get("token") or {}
        asked, own = words(token.get("asked")), words(self.scope)
        if token and {*wanted, *own} <= set(asked):
            if token["value"] != self._used.get("value"):
                if not self._is_due(token):
                    self._uses = 1  # by the object or program that stored it
                    self.outcome = "stored"
                    return token
            elif status == 403:
                raise OAuthError(
                    "the server wants more scope, but the token that it refused was "
                    f"requested with '{plain(' '.join(wanted))}'" + self._why,
                    403,
                )
            elif self._uses == 1 and not self._is_due(token):
                self._uses = 2  # the next request may get a new token
                raise OAuthError(
                    "the server refused a token that was just obtained for it"
                    + self._why
                )
            refreshed = self._refreshed(source, token, asked)
            if refreshed:
                self.outcome = "renewed"
                return refreshed
        # basic/authorization/index §Scope Selection Strategy; §Step-Up Authorization
        # Flow: scopes that were requested before are requested again.
        listed = [] if wanted or asked else source.scopes
        made = self._log_in(source, words([*asked, *wanted, *listed, *own]))
        self.outcome = "new"
        return made

    @property
    def _why(self) -> str:
        return f": {self.said}" if self.said else ""

    def _log_in(self, source: Source, scopes: list[str]) -> Message:
        """Get a token by the grant; if the issuer has forgotten our registration, once
        more with a new one."""
        entry = self._entry(source)
        self._forget = bool(entry.get("doubt"))
        is_stored = bool(entry.get("client")) and not self._forget
        try:
            try:
                return self._logged_in(source, scopes, is_stored)
            except OAuthError as problem:
                if not is_stored or problem.code not in FORGOTTEN:
                    raise
                self._forget = True
                return self._logged_in(source, scopes, False)
        finally:
            self._forget = False

    def _logged_in(self, source: Source, scopes: list[str], is_stored: bool) -> Message:
        try:
            client, form = self.grant.form(self, source, scopes)
            return self._new_token(source, client, form, scopes)
        except LoginNeeded:
            raise
        except OAuthError as problem:
            # An issuer that does not know the client may tell only the user, on its
            # page, or answer with a page.
            if is_stored:
                self.keep(source, doubt=not (problem.code or problem.temporary))
            raise

    def begin_visit(self, source: Source) -> None:
        """Note that a user visits a page, from which they may not come back."""
        if self._entry(source).get("client"):
            self.keep(source, doubt=True)

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
                if problem.temporary and not self.asked:
                    raise
                if problem.code in FORGOTTEN:
                    self.keep(source, doubt=True)
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
        if self._forget or not entry.get("client"):
            return None
        return Registration(*entry["client"])

    def parameters(self, source: Source) -> Message:
        """Return what says for which server a token is: basic/authorization/index
        §Resource Parameter Implementation."""
        resource = source.resource if self.send_resource else ""
        return {"resource": resource, "audience": self.audience}

    def _new_token(
        self, source: Source, client: Registration, form: Message, scopes: list[str]
    ) -> Message:
        """Request a token and store it, with the registration that it was got with."""
        endpoint = checked(
            source.metadata.get("token_endpoint"), "token_endpoint", source.issuer
        )
        form = {**form, **self.parameters(source)}
        headers = self.authenticate(source, client, form)
        made = self._answer(endpoint, form, headers, source.dpop)
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
        is_ours = client.client_id in ("", self.client_id, self.metadata_url)
        known = {} if is_ours else {"client": client}
        self.keep(source, token=token, doubt=False, **known)
        self._uses = 0
        return token

    def _answer(
        self, endpoint: str, form: Message, headers: dict[str, str], dpop: bool
    ) -> Message:
        """Post to the token endpoint; while a user logs in on another device, again."""
        pause = float(form.pop("interval", 0))
        end = time.monotonic() + float(form.pop("expires_in", 0))
        while True:
            try:
                return self.post(endpoint, form, headers, dpop)
            except OAuthError as problem:  # RFC 8628 §3.5
                waits = problem.code in ("authorization_pending", "slow_down")
                if not (pause and waits) or time.monotonic() > end:
                    raise
                pause += 5 if problem.code == "slow_down" else 0
            time.sleep(pause)
            _budget.until += pause

    def authenticate(
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
    Steps. Without one on this machine, on another device, where the issuer offers that
    (RFC 8628)."""

    def __init__(self, browser: Browser | None = None) -> None:
        self.browser = browser or Browser()

    def form(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        if "device_authorization_endpoint" in source.metadata:
            if self.browser.elsewhere:
                return self._on_a_device(oauth, source, scopes)
        endpoint = checked(
            source.metadata.get("authorization_endpoint"),
            "authorization_endpoint",
            source.issuer,
        )
        verifier, state = b64(os.urandom(48)), b64(os.urandom(24))
        query = self._query(oauth, source, scopes, verifier)
        query["state"] = state
        client = oauth.registered(source)
        with self.browser.listen(client.redirect_uri if client else "", state) as uri:
            if client is None or client.redirect_uri not in ("", uri):
                client = register(source, uri, oauth.name)
            query.update(client_id=client.client_id, redirect_uri=uri)
            joint = "&" if "?" in endpoint else "?"
            given = {name: value for name, value in query.items() if value}
            with a_person_acts():
                oauth.begin_visit(source)
                if oauth.said:
                    self.browser.say(f"The server says: {oauth.said}")
                address = self.browser.visit(endpoint + joint + urlencode(given))
        return client, {
            "grant_type": "authorization_code",
            "redirect_uri": uri,
            "code": code_in(address, source, state),
            "code_verifier": verifier,
        }

    def _query(
        self, oauth: OAuth, source: Source, scopes: list[str], verifier: str
    ) -> Message:
        """Return what the login page is asked with."""
        offered = source.metadata.get("code_challenge_methods_supported")
        if not isinstance(offered, list) or "S256" not in offered:
            # .../security-considerations §Authorization Code Protection
            raise OAuthError(f"{shown(source.issuer)} does not offer PKCE with S256")
        query = {
            "response_type": "code",
            "code_challenge": b64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            **oauth.parameters(source),
        }
        if scopes and "offline_access" in words(
            source.metadata.get("scopes_supported")
        ):
            # .../index §Refresh Tokens; OpenID Connect requires consent for it
            scopes = words([*scopes, "offline_access"])
            query["prompt"] = "consent"
        query["scope"] = " ".join(scopes)
        return query

    def _on_a_device(
        self, oauth: OAuth, source: Source, scopes: list[str]
    ) -> tuple[Registration, Message]:
        """Show the user a page and a code for any device; return what to post until
        they have entered it."""
        endpoint = checked(
            source.metadata["device_authorization_endpoint"],
            "device_authorization_endpoint",
            source.issuer,
        )
        kind = GRANT_TYPE + "device_code"
        client = oauth.registered(source)
        if client is None:
            # It is asked for a redirect URI, but no browser returns to it.
            client = register(source, "http://127.0.0.1/callback", oauth.name, kind)
        form = {"scope": " ".join(scopes), **oauth.parameters(source)}
        headers = oauth.authenticate(source, client, form)
        made = oauth.post(endpoint, form, headers, False)
        page, code = made.get("verification_uri"), made.get("user_code")
        if not isinstance(made.get("device_code"), str) or not isinstance(code, str):
            raise OAuthError(f"{shown(endpoint)} returned no code for the user")
        page = checked(page, "verification_uri", source.issuer)
        self.browser.say(f"Open {page} on any device, and enter the code {plain(code)}")
        return client, {
            "grant_type": kind,
            "device_code": made["device_code"],
            "interval": seconds_in(made.get("interval"), 5, 60),
            "expires_in": seconds_in(made.get("expires_in"), 300, 1800),
        }


@contextlib.contextmanager
def a_person_acts() -> Iterator[None]:
    """Do not count the time meanwhile."""
    start = time.monotonic()
    try:
        yield
    finally:
        _budget.until += time.monotonic() - start


def seconds_in(value: Any, default: float, most: float) -> float:
    """Return a time that the issuer names, within bounds."""
    usable = isinstance(value, (int, float)) and 0 < value
    return min(float(value), most) if usable else default


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


def say(line: str) -> None:
    """Tell the user something."""
    print(line, file=sys.stderr, flush=True)


def show(url: str) -> None:
    """Show the user the page to log in. Also if a browser opens: it may be another
    one's, or open nothing."""
    say(f"Open this page to log in: {url}")


class Browser:
    """Where a user logs in. `redirect_uri`: a fixed one, if the client was registered
    with it; `seconds`: the time a user has; `show(url)`: called with the page; `say`:
    called with other lines for the user; `opens`: open the page, too; `elsewhere`: the
    user's browser may be on another machine (by default, if we do not open it);
    `reads`: at a terminal, the user may paste the address that a browser elsewhere was
    redirected to, or the code in it. A subclass overrides listen() and visit().
    """

    def __init__(
        self,
        redirect_uri: str = "",
        seconds: float = 300,
        *,
        show: Callable[[str], Any] = show,
        say: Callable[[str], Any] = say,
        opens: bool = True,
        elsewhere: bool | None = None,
        reads: bool = True,
    ) -> None:
        self.redirect_uri, self.seconds = redirect_uri, seconds
        self.show, self.say, self.opens = show, say, opens
        self.elsewhere = not opens if elsewhere is None else elsewhere
        self.reads = reads
        self._server: Any = None
        self._state = ""
        self._given_up = False

    def give_up(self) -> None:
        """End visit() soon: the user does not log in. From any thread."""
        self._given_up = True

    @contextlib.contextmanager
    def listen(self, registered: str, state: str) -> Iterator[str]:
        """Open a port for the login, the registered one if it is free; yield the
        redirect URI."""
        parts = urlsplit(
            self.redirect_uri or registered or "http://127.0.0.1:0/callback"
        )
        self._state = state
        try:
            self._server = _landing(parts.port or 0, parts.path, state)
        except OSError:
            if self.redirect_uri:
                raise OAuthError(
                    f"port {parts.port}, of {shown(self.redirect_uri)}, is in use"
                ) from None
            self._server = _landing(0, parts.path, state)
        with self._server:
            yield f"http://{parts.hostname}:{self._server.server_address[1]}{parts.path}"

    def visit(self, url: str) -> str:
        """Show a page to the user; return the address that the browser was redirected
        to."""
        import webbrowser

        self.show(url)
        if self.opens:
            # On a thread: one in the terminal returns only when its user leaves it.
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()
        reads = self.reads and _has_terminal()
        if reads:
            self.say("If no browser here can open it: open it elsewhere, and paste the")
            self.say("address that you end up at, which begins with http://127.0.0.1")
        end = time.monotonic() + self.seconds
        # A connection has a thread, so that a slow one holds up nobody.
        while not self._server.address:
            left = end - time.monotonic()
            if self._given_up:
                raise OAuthError("the user has not logged in")
            if left <= 0:
                raise OAuthError(
                    f"no login in the browser within {self.seconds:g} seconds"
                )
            self._server.timeout = min(left, 0.1)
            self._server.handle_request()
            pasted = _line_typed() if reads else ""
            if pasted:
                return self._address(pasted)
        return str(self._server.address)

    def _address(self, pasted: str) -> str:
        """Return the address that a user pasted; a code alone is one, too: it is bound
        to this login by PKCE."""
        if "?" in pasted:
            return pasted
        return "/?" + urlencode({"code": pasted, "state": self._state})


class Nobody(Browser):
    """No user: a login raises LoginNeeded with `message`, which says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    @contextlib.contextmanager
    def listen(self, registered: str, state: str) -> Iterator[str]:
        raise LoginNeeded(self.message)
        yield ""


def _has_terminal() -> bool:
    # Elsewhere, nothing tells whether a line was typed.
    return os.name == "posix" and sys.stdin is not None and sys.stdin.isatty()


def _line_typed() -> str:
    """Return a line that the user has typed meanwhile, or nothing."""
    import select

    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return sys.stdin.readline().strip() if ready else ""


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


# ==== 9. Settings, and leaving ========================================================

# How an application is told what OAuth() takes: the name on a command line and in a
# file; what hosts call it; and what it is.
SETTINGS = {
    "client_id": ("clientId", "the client that was registered by hand"),
    "client_secret": ("clientSecret", "its secret (better in the environment)"),
    "scope": ("scopes", "scopes to ask for, with spaces between them"),
    "redirect_port": ("callbackPort", "the port that the browser returns to"),
    "redirect_uri": ("redirectUri", "the whole address that it returns to"),
    "audience": ("audience", "what the issuer calls the server, if it wants that"),
    "resource": ("resource", '"no": do not send the parameter `resource`'),
    "issuer": ("issuer", "the issuer that the client is registered with"),
    "authorization_url": ("authorizationUrl", "the authorization endpoint"),
    "token_url": ("tokenUrl", "the token endpoint"),
    "grant": ("grantType", '"client_credentials": log in as a program'),
}
ENVIRONMENT = "MCP_OAUTH_"  # and the name in capitals


def settings_in(entry: Message) -> dict[str, str]:
    """Return the settings in the member "oauth" of a host's entry. ValueError for one
    that is not a text."""
    found: dict[str, str] = {}
    for name, (hosts, _) in SETTINGS.items():
        for spelling in (name, hosts):
            value = entry.get(spelling)
            if isinstance(value, list) and name == "scope":
                value = " ".join(map(str, value))
            if value is False:
                value = "no"
            if value in (None, "", True):
                continue
            if not isinstance(value, (str, int)):
                raise ValueError(f"oauth.{spelling} must be a string")
            found[name] = str(value)
    return found


def settings_from(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the environment."""
    names = {name: ENVIRONMENT + name.upper() for name in SETTINGS}
    return {name: environ[long] for name, long in names.items() if environ.get(long)}


def hook_for(
    settings: dict[str, str],
    *,
    browser: Browser | None = None,
    store: dict[str, Message] | TokenFile | None = None,
    asked: bool = False,
) -> OAuth:
    """Make a hook from settings; ValueError if they are wrong."""
    unknown = ", ".join(settings.keys() - SETTINGS.keys())
    if unknown:
        raise ValueError(f"unknown: {unknown}; expected some of {', '.join(SETTINGS)}")
    given = {name: settings.get(name, "") for name in SETTINGS}
    grant: Any = ClientCredentials()
    if given["grant"] not in ("", "client_credentials", "authorization_code"):
        raise ValueError(f"grant must be client_credentials, not {given['grant']!r}")
    if given["grant"] != "client_credentials":
        browser = browser or Browser()
        port = given["redirect_port"]
        if port and not (port.isdecimal() and int(port) < 65536):
            raise ValueError(f"redirect_port must be a port, not {port!r}")
        if port or given["redirect_uri"]:
            uri = given["redirect_uri"] or f"http://127.0.0.1:{port}/callback"
            browser.redirect_uri = uri
        grant = AuthorizationCode(browser)
    endpoints = {
        "authorization_endpoint": given["authorization_url"],
        "token_endpoint": given["token_url"],
    }
    endpoints = {name: url for name, url in endpoints.items() if url}
    if endpoints and "token_endpoint" not in endpoints:
        raise ValueError("authorization_url needs token_url, too")
    return OAuth(
        given["client_id"],
        given["client_secret"],
        issuer=given["issuer"],
        scope=given["scope"],
        grant=grant,
        store=TokenFile() if store is None else store,
        asked=asked,
        endpoints=endpoints,
        audience=given["audience"],
        send_resource=given["resource"].lower() not in ("no", "none", "false"),
    )


def store_url(url: str) -> str:
    """Return under which name a server's tokens are stored."""
    return re.split("[?#]", url)[0]


def logout(url: str, store: dict[str, Message] | TokenFile | None = None) -> list[str]:
    """Remove what is stored for a server, and revoke it where the issuer offers that
    (RFC 7009). Returns what was done, as lines; an empty list: nothing was stored."""
    kept: Any = TokenFile() if store is None else store
    done = []
    for name in list(kept.keys()):
        if name.rpartition(" ")[2] != store_url(url):
            continue
        entry = kept.pop(name)
        issuer = shown(entry.get("issuer", ""))
        done.append(f"removed what {issuer} issued for {shown(url)}")
        try:
            done.append(_revoke(entry, name.split(" ")[1]))
        except OAuthError as problem:
            done.append(f"{issuer} may still accept it: {problem}")
    return done


def _revoke(entry: Message, client_id: str) -> str:
    """Revoke the token in an entry; return what was done."""
    _budget.until = time.monotonic() + FETCH_SECONDS
    issuer, token = str(entry.get("issuer", "")), entry.get("token") or {}
    value = token.get("refresh") or token.get("value")
    metadata = issuer_metadata(issuer)
    endpoint = metadata.get("revocation_endpoint")
    if not value or endpoint is None:
        return f"{shown(issuer)} does not offer to revoke it: it ends by itself"
    checked(endpoint, "revocation_endpoint", issuer)
    oauth = OAuth()
    source = Source(issuer, "", metadata, [], False)
    client = Registration(*(entry.get("client") or [client_id]))
    form = {"token": value}
    status, _, answer = fetch_json(
        "POST",
        endpoint,
        {
            **oauth.authenticate(source, client, form),
            "Content-Type": "application/x-www-form-urlencoded",
        },
        urlencode(form).encode(),
    )
    if status != 200:
        raise refused(endpoint, status, answer)
    return f"{shown(issuer)} has revoked it"


USAGE = """usage: oauth.py URL | oauth.py logout URL

Log in to an MCP server and list its tools; or remove what is stored for it, and revoke
it where the issuer offers that. mcp_cli.py has more options."""

if __name__ == "__main__":
    words_given = sys.argv[1:]
    if not words_given or "--help" in words_given or "-h" in words_given:
        print(USAGE)
        sys.exit(0 if words_given else 2)
    if words_given[0] == "logout":
        print(*logout(words_given[-1]) or ["nothing was stored"], sep="\n")
    else:
        try:
            with connect(words_given[0], authorize=OAuth(store=TokenFile())) as client:
                print(*(plain(tool["name"]) for tool in client.list_tools()), sep="\n")
        except (RpcError, HttpError, OSError, Malformed) as problem:
            sys.exit(printable(str(problem)))
