"""Protect an MCP server with OAuth 2.1: two hooks for serve_http(authorize=...).

    me, issuer = "https://mcp.example.com/mcp", "https://auth.example.com"
    serve_http(server, metadata=resource_metadata(me, [issuer]),
        authorize=introspection(issuer + "/introspect", "id", "secret", resource=me))

introspection() asks the issuer about each token. local_keys() verifies JWTs with the
issuer's public keys and the `cryptography` package. Both accept only tokens issued for
this server (basic/authorization/index §Token Handling) that have all of `scopes`.
`ctx.principal` is the list [issuer, subject, client_id], which is equal for all tokens
of one user and client; it is JSON, as request state requires. DPoP is not supported.
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
from typing import Any
from urllib.parse import quote_plus, urlencode

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import Malformed, fetch
from oauth import well_known, words

from mcp_ref import HttpError

Message = dict[str, Any]
Hook = Callable[[dict[str, str]], list[str]]  # takes the headers, returns the principal

LEEWAY_SECONDS = 30  # how far the issuer's clock may be ahead
MAX_KNOWN = 1000  # right tokens that are remembered, and as many wrong ones
ISSUER_SECONDS = 3  # for the issuer to answer
PLACE_SECONDS = 2  # for a request to wait until it may ask
FAILED_SECONDS = 3  # without a question to the issuer, after it failed


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
) -> Hook:
    """Make a hook that asks the issuer (RFC 7662), at most eight questions at a time. A
    revoked token is accepted for `seconds`."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
    headers = {
        "Authorization": "Basic " + base64.b64encode(pair).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    asked = Issuer(endpoint, headers, seconds)
    return _hook(asked.find, resource, issuer, list(scopes))


class Issuer:
    """What an issuer says about tokens: find() remembers it, or asks.

    Strangers may send any number of wrong tokens. So those are remembered apart, and
    cannot take all places for asking: two of eight are for tokens that were right.
    `lock` guards `right`, `wrong` and `failed`; nobody asks while holding it.
    """

    def __init__(self, endpoint: str, headers: dict[str, str], seconds: float) -> None:
        self.endpoint, self.headers, self.seconds = endpoint, headers, seconds
        # Until when, and the claims; by digest, so that no token is stored. The oldest
        # come first.
        self.right: dict[bytes, tuple[float, Message]] = {}
        self.wrong: dict[bytes, tuple[float, Message]] = {}
        self.failed = float("-inf")  # when it last did
        self.lock = threading.Lock()
        self.places = {True: threading.Semaphore(2), False: threading.Semaphore(6)}

    def find(self, token: str) -> Message | None:
        """Return the claims of a token, or None if it is not valid; HttpError if the
        issuer does not say."""
        if not re.fullmatch("[!-~]{1,8192}", token):
            return None  # or an error of the issuer's would count as its failure
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._recall(digest)
        if claims is None:
            place = self.places[digest in self.right]
            if not place.acquire(timeout=PLACE_SECONDS):
                raise _unknown()
            try:
                # Another thread may have asked, or failed, while this one waited.
                claims = self._recall(digest) or self._ask(token)
                self._remember(digest, claims)
            finally:
                place.release()
        return claims if claims.get("active") is True else None

    def _recall(self, digest: bytes) -> Message | None:
        """Return what the issuer said a short time ago; HttpError if it failed then."""
        now = time.monotonic()
        with self.lock:
            until, claims = self.right.get(digest) or self.wrong.get(digest, (now, {}))
            if now < until:
                return claims
            if now < self.failed + FAILED_SECONDS:
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

    def _ask(self, token: str) -> Message:
        form = urlencode({"token": token}).encode()
        try:
            status, _, content = fetch(
                "POST", self.endpoint, self.headers, form, ISSUER_SECONDS
            )
            if status == 200:
                # `exp` is optional here
                return {"exp": float("inf"), **json.loads(content)}
        except (OSError, TypeError, ValueError, Malformed):
            pass
        with self.lock:
            self.failed = time.monotonic()
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
) -> Hook:
    """Make a hook for JWTs. `keys`: the issuer's JWK set, or a function that returns
    it."""
    if not issuer or not find_spec("cryptography"):
        raise ValueError("local_keys() needs an issuer, and the package 'cryptography'")
    return _hook(
        lambda token: verified(token, keys() if callable(keys) else keys),
        resource,
        issuer,
        list(scopes),
    )


def _hook(
    find: Callable[[str], Message | None], resource: str, issuer: str, needed: list[str]
) -> Hook:
    """Make a hook. `find`: a function that returns a token's claims, or None if it is
    invalid."""

    def refusal(status: int, message: str, error: str = "") -> HttpError:
        # basic/authorization/index §Scope Challenge Handling; RFC 9728 §5.1
        told = {
            "error": error,
            "scope": " ".join(needed),
            "resource_metadata": well_known(resource, "oauth-protected-resource"),
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
        claims = find(token.strip())
        if claims is None or not is_for_us(claims, resource, issuer, time.time()):
            raise refusal(
                401, "The token is not valid for this server", "invalid_token"
            )
        if not set(needed) <= set(words(claims.get("scope") or claims.get("scp"))):
            raise refusal(403, "The token lacks a required scope", "insufficient_scope")
        return [
            str(claims.get("iss", "")),
            claims["sub"],
            str(claims.get("client_id") or claims.get("azp", "")),
        ]

    return authorize


def is_for_us(claims: Message, resource: str, issuer: str, now: float) -> bool:
    """Tell whether a token's claims make it valid for this server at `now` (RFC 9068
    §4)."""
    audience, ends, starts = claims.get("aud"), claims.get("exp"), claims.get("nbf", 0)
    if (
        resource not in (audience if isinstance(audience, list) else [audience])
        or issuer
        and claims.get("iss") != issuer
        or "cnf" in claims
        or not isinstance(ends, (int, float))
        or not isinstance(starts, (int, float))
    ):
        return False
    subject = claims.get("sub")  # without one, callers could not be told apart
    return (
        isinstance(subject, str)
        and subject != ""
        and starts - LEEWAY_SECONDS <= now < ends
    )


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
