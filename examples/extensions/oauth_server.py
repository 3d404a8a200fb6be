"""Protect an MCP server with OAuth 2.1: two hooks for serve_http(authorize=...).

    me, issuer = "https://mcp.example.com/mcp", "https://auth.example.com"
    serve_http(server, metadata=resource_metadata(me, [issuer]),
        authorize=introspection(issuer + "/introspect", "id", "secret", resource=me))

introspection() asks the issuer about each token. local_keys() verifies JWTs with the
issuer's public keys and the `cryptography` package. Both accept only tokens issued for
this server (basic/authorization/index §Token Handling) that have all of `scopes`.
`ctx.principal` is the list [issuer, subject, client_id], which is equal for all tokens
of one user and client; it is JSON, as request state requires. A refusal has its reason
in the log. DPoP is not supported.

Issuers differ in what they call things. Both functions take the options of Accept:

    an audience that is not the server's URL    audience="api://5f3d...", or a list
    no audience in the token (Cognito)          without_audience=True
    scopes in other claims (Entra, Auth0)       scope_claims=["scp", "roles"]
    no `sub` (programs, in some products)       subject_claims=["sub", "client_id"]
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import Malformed, fetch
from oauth import plain, well_known, words

from mcp_ref import HttpError, log

Message = dict[str, Any]
Hook = Callable[[dict[str, str]], list[str]]  # takes the headers, returns the principal

LEEWAY_SECONDS = 30  # how far the issuer's clock may be ahead
MAX_KNOWN = 1000  # right tokens that are remembered, and as many wrong ones
ISSUER_SECONDS = 3  # for the issuer to answer
PLACE_SECONDS = 2  # for a request to wait until it may ask
FAILED_SECONDS = 3  # without a question to the issuer, after it was down


def resource_metadata(resource: str, issuers: list[str], **members: Any) -> Message:
    """Make the document for serve_http(metadata=...). `members`: further ones from RFC
    9728 §2."""
    return {
        "resource": resource,
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
        **members,
    }


def introspection(
    endpoint: str,
    client_id: str,
    client_secret: str,
    *,
    resource: str,
    issuer: str = "",
    scopes: Iterable[str] = (),
    seconds: float = 10,
    **accept: Any,
) -> Hook:
    """Make a hook that asks the issuer (RFC 7662), at most eight questions at a time. A
    revoked token is accepted for `seconds`. `accept`: see Accept."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
    headers = {
        "Authorization": "Basic " + base64.b64encode(pair).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    asked = Issuer(endpoint, headers, seconds)

    def find(token: str) -> tuple[Message | None, str]:
        return asked.find(token), "the issuer says that it is not valid"

    return _hook(find, Accept.of(resource, issuer, scopes, **accept))


class Accept(NamedTuple):
    """Which tokens a server accepts.

    `audience`: what the issuer calls the server, one of which must be in `aud`; by
    default, it is the resource's URL. `without_audience`: a token without `aud` will
    do; then anyone with a token of this issuer may call. `scope_claims`: those that
    list scopes, roles or permissions. `subject_claims`: the first of these that a token
    has says who calls.
    """

    resource: str
    issuer: str
    scopes: list[str]
    audience: list[str]
    without_audience: bool = False
    scope_claims: Iterable[str] = ("scope", "scp")
    subject_claims: Iterable[str] = ("sub",)

    @classmethod
    def of(
        cls,
        resource: str,
        issuer: str,
        scopes: Iterable[str],
        audience: str | Iterable[str] = (),
        **others: Any,
    ) -> Accept:
        """Check and complete the options."""
        named = [audience] if isinstance(audience, str) else list(audience)
        for name in ("scope_claims", "subject_claims"):
            if isinstance(others.get(name, ()), str):
                raise TypeError(f"{name} is a list of names")
        if isinstance(scopes, str):
            raise TypeError("scopes is a list: scopes=['read', 'write']")
        return cls(resource, issuer, list(scopes), named or [resource], **others)

    def scopes_in(self, claims: Message) -> set[str]:
        """Return the scopes of a token."""
        return {one for name in self.scope_claims for one in words(claims.get(name))}

    def lacks(self, claims: Message) -> str:
        """Return which scopes a token lacks, for the log; or nothing."""
        missing = " ".join(sorted(set(self.scopes) - self.scopes_in(claims)))
        has = plain(" ".join(sorted(self.scopes_in(claims)))) or "none"
        names = ", ".join(self.scope_claims)
        return f"it lacks {missing}; it has {has} (in {names})" if missing else ""

    def subject_in(self, claims: Message) -> str:
        """Return who calls, or nothing."""
        for name in self.subject_claims:
            if isinstance(claims.get(name), str) and claims[name]:
                return str(claims[name])
        return ""


class Issuer:
    """What an issuer says about tokens: find() remembers it, or asks.

    Strangers may send any number of wrong tokens. So those are remembered apart, and
    cannot take all places for asking: two of eight are for tokens that were right. For
    these, only their own questions show that the issuer is down.
    `lock` guards `right`, `wrong` and `failed`; nobody asks while holding it.
    """

    def __init__(self, endpoint: str, headers: dict[str, str], seconds: float) -> None:
        self.endpoint, self.headers, self.seconds = endpoint, headers, seconds
        # Until when, and the claims; by digest, so that no token is stored. The oldest
        # come first.
        self.right: dict[bytes, tuple[float, Message]] = {}
        self.wrong: dict[bytes, tuple[float, Message]] = {}
        # When it was last down, for tokens that were right and for others.
        self.failed = {True: float("-inf"), False: float("-inf")}
        self.lock = threading.Lock()
        self.places = {True: threading.Semaphore(2), False: threading.Semaphore(6)}

    def find(self, token: str) -> Message | None:
        """Return the claims of a token, or None if it is not valid; HttpError if the
        issuer does not say."""
        if not re.fullmatch("[!-~]{1,8192}", token):
            return None
        digest = hashlib.sha256(token.encode()).digest()
        was_right = digest in self.right
        claims = self._recall(digest, was_right)
        if claims is None:
            place = self.places[was_right]
            if not place.acquire(timeout=PLACE_SECONDS):
                raise _unknown()
            try:
                # Another thread may have asked, or failed, while this one waited.
                claims = self._recall(digest, was_right) or self._ask(token, was_right)
                self._remember(digest, claims)
            finally:
                place.release()
        return claims if claims.get("active") is True else None

    def _recall(self, digest: bytes, was_right: bool) -> Message | None:
        """Return what the issuer said a short time ago; HttpError if it was down."""
        now = time.monotonic()
        with self.lock:
            until, claims = self.right.get(digest) or self.wrong.get(digest, (now, {}))
            if now < until:
                return claims
            if now < self.failed[was_right] + FAILED_SECONDS:
                raise _unknown()
        return None

    def _remember(self, digest: bytes, claims: Message) -> None:
        with self.lock:
            self.right.pop(digest, None)
            self.wrong.pop(digest, None)
            known = self.right if claims.get("active") is True else self.wrong
            while len(known) >= MAX_KNOWN:
                del known[next(iter(known))]
            known[digest] = time.monotonic() + self.seconds, claims

    def _ask(self, token: str, was_right: bool) -> Message:
        form = urlencode({"token": token}).encode()
        is_down = False
        try:
            status, _, content = fetch(
                "POST", self.endpoint, self.headers, form, ISSUER_SECONDS
            )
            if status == 200:
                # `exp` is optional here
                return {"exp": float("inf"), **json.loads(content)}
            is_down = status >= 500
        except OSError:
            is_down = True
        except (TypeError, ValueError, Malformed):
            pass
        # Any other failure may be about this token, which a stranger may have sent.
        if is_down:
            with self.lock:
                self.failed[was_right] = time.monotonic()
        raise _unknown()


def _unknown() -> HttpError:
    message = "The issuer cannot check tokens now: retry"
    return HttpError(503, message, {"Retry-After": str(FAILED_SECONDS)})


def local_keys(
    keys: Message | Callable[[], Message],
    *,
    issuer: str,
    resource: str,
    scopes: Iterable[str] = (),
    **accept: Any,
) -> Hook:
    """Make a hook for JWTs. `keys`: the issuer's JWK set, or a function that returns
    it. `accept`: see Accept."""
    if not issuer or not find_spec("cryptography"):
        raise ValueError("local_keys() needs an issuer, and the package 'cryptography'")

    def find(token: str) -> tuple[Message | None, str]:
        claims = verified(token, keys() if callable(keys) else keys)
        return claims, "it is not a JWT that one of the keys has signed"

    return _hook(find, Accept.of(resource, issuer, scopes, **accept))


def _hook(find: Callable[[str], tuple[Message | None, str]], accept: Accept) -> Hook:
    """Make a hook. `find`: a function that returns a token's claims, or None and what
    is wrong with it."""

    def refusal(status: int, message: str, error: str = "") -> HttpError:
        # basic/authorization/index §Scope Challenge Handling; RFC 9728 §5.1
        told = {
            "error": error,
            "scope": " ".join(accept.scopes),
            "resource_metadata": well_known(
                accept.resource, "oauth-protected-resource"
            ),
        }
        return HttpError(
            status,
            message,
            {
                "WWW-Authenticate": "Bearer "
                + ", ".join(
                    f'{name}="{value}"' for name, value in told.items() if value
                )
            },
        )

    def authorize(headers: dict[str, str]) -> list[str]:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise refusal(401, "A bearer token is required")
        claims, flaw = find(token.strip())
        if claims is not None:
            flaw = flaw_in(claims, accept, time.time())
        if claims is None or flaw:
            log(f"oauth: a token is refused: {flaw}")
            raise refusal(
                401, "The token is not valid for this server", "invalid_token"
            )
        lacks = accept.lacks(claims)
        if lacks:
            log(f"oauth: a token is refused: {lacks}")
            raise refusal(403, "The token lacks a required scope", "insufficient_scope")
        return [
            str(claims.get("iss", "")),
            accept.subject_in(claims),
            str(claims.get("client_id") or claims.get("azp", "")),
        ]

    return authorize


def flaw_in(claims: Message, accept: Accept, now: float) -> str:
    """Return why a token's claims do not make it valid for this server at `now`, or
    nothing (RFC 9068 §4)."""
    audience, ends, starts = claims.get("aud"), claims.get("exp"), claims.get("nbf", 0)
    named = audience if isinstance(audience, list) else [audience]
    is_open = accept.without_audience and audience in (None, [], "")
    if not is_open and not any(one in named for one in accept.audience):
        return f"its aud is {plain(audience)}, not {' or '.join(accept.audience)}"
    if accept.issuer and claims.get("iss") != accept.issuer:
        return f"its iss is {plain(claims.get('iss'))}, not {accept.issuer}"
    if "cnf" in claims:
        return "it is bound to a key (cnf), which is not supported"
    if not isinstance(ends, (int, float)) or not isinstance(starts, (int, float)):
        return "its exp or nbf is not a number"
    if now >= ends:
        return f"it has expired {now - ends:.0f} s ago"
    if starts - LEEWAY_SECONDS > now:
        return f"it is not valid before {starts - now:.0f} s from now"
    if not accept.subject_in(claims):  # callers could not be told apart
        return f"it says nowhere who calls (in {', '.join(accept.subject_claims)})"
    return ""


def verified(token: str, keys: Message) -> Message | None:
    """Return the claims of a JWT if one of the keys signed it, with ES256 or RS256;
    else None."""
    try:
        head, body, signature = token.split(".")
        header, claims = json.loads(unb64(head)), json.loads(unb64(body))
        kind = header.get("typ", "JWT").lower().rpartition("/")[2]
        if kind in ("jwt", "at+jwt") and "crit" not in header:  # RFC 8725 §3.11
            for key in keys["keys"]:
                if (
                    header.get("kid") in (None, key.get("kid"))
                    and key.get("use", "sig") == "sig"
                    and has_signed(
                        key, header["alg"], f"{head}.{body}", unb64(signature)
                    )
                ):
                    return dict(claims)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # not a JWT
    return None


def has_signed(key: Message, algorithm: str, text: str, signature: bytes) -> bool:
    """Tell whether a JWK signed a text. The key determines the algorithm (RFC 8725
    §3.1)."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    kind = key.get("kty"), key.get("crv"), algorithm
    try:
        number = {
            name: int.from_bytes(unb64(key[name]), "big")
            for name in "xyne"
            if name in key
        }
        if kind == ("EC", "P-256", "ES256") and len(signature) == 64:
            r, s = (
                int.from_bytes(signature[:32], "big"),
                int.from_bytes(signature[32:], "big"),
            )
            ec.EllipticCurvePublicNumbers(
                number["x"], number["y"], ec.SECP256R1()
            ).public_key().verify(
                utils.encode_dss_signature(r, s),
                text.encode(),
                ec.ECDSA(hashes.SHA256()),
            )
            return True
        if kind == ("RSA", None, "RS256") and number["n"].bit_length() >= 2048:
            rsa.RSAPublicNumbers(number["e"], number["n"]).public_key().verify(
                signature, text.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
            return True
    except (InvalidSignature, KeyError, TypeError, ValueError):
        pass  # a wrong or unusable key: another may match
    return False


def unb64(content: str) -> bytes:
    return base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
