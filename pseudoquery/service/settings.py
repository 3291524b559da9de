"""The settings of a service: who may read and write, from where, and how much at once."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pseudoquery.errors import PseudoqueryError

Access = Literal["none", "read", "write"]

SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")
_NO_LIMITS = ("read_tokens", "write_tokens", "cors_origins")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The settings of a service: who may read and write, from where, and how much at once.

    Examples:
        >>> ServiceSettings(top=20, query_characters=500).limits()["top"]
        20

    Raises:
        PseudoqueryError: A setting can't be used. The message never quotes a token.
    """

    read_tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that allow searching and reading. Without any tokens, no token is needed."""
    write_tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that also allow changing documents. With read tokens alone, nobody can."""
    cors_origins: tuple[str, ...] = ()
    """Web origins whose pages may use the service, such as https://example.org, or * for all."""
    body_bytes: int = 4 << 20
    """The largest size in bytes of a request, and of a line of a bulk request."""
    bulk_bytes: int = 1 << 30
    """The largest size in bytes of a bulk request."""
    document_characters: int = 1_000_000
    """The most characters that a document's title and text may have together."""
    metadata_bytes: int = 256 << 10
    """The largest size in bytes of a document's metadata, as JSON."""
    query_characters: int = 4000
    """The most characters that a question may have."""
    queries: int = 64
    """The most questions that a request may have."""
    top: int = 100
    """The most documents that a request may ask for per question."""
    response_bytes: int = 64 << 20
    """The largest size in bytes of an answer."""
    concurrency: int = 256
    """The most requests that may be in progress at once."""
    connections: int = 1000
    """The most connections that may be open at once. If more come, the one that has waited longest
    for a request is closed. The limit on open files may allow fewer."""
    seconds: float = 30.0
    """How many seconds a request may take, or each part of a bulk request."""
    head_seconds: float = 10.0
    """How many seconds a client may take to send the head of a request."""

    def __post_init__(self) -> None:
        for token in (*self.read_tokens, *self.write_tokens):
            if len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
                raise PseudoqueryError(
                    f"a token must have at least {SHORTEST_TOKEN} characters, all of them ASCII "
                    "and without spaces; make one with: openssl rand -hex 32"
                )
        if set(self.read_tokens) & set(self.write_tokens):
            raise PseudoqueryError(
                "a read token is also a write token; a write token also allows reading, so leave "
                "it out of the read tokens."
            )
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise PseudoqueryError(
                    f"{origin!r} is not an origin; write it as https://example.org, without a path."
                )
        for name, value in self.limits().items():
            if value <= 0:
                raise PseudoqueryError(f"{name} is {value}; it must be more than 0.")

    @property
    def protected(self) -> bool:
        """Whether requests need a token."""
        return bool(self.read_tokens or self.write_tokens)

    def limits(self) -> dict[str, Any]:
        """List the limits by name."""
        return {name: value for name, value in asdict(self).items() if name not in _NO_LIMITS}

    def access(self, authorization: str) -> Access:
        """Return what the value of an Authorization header allows."""
        if not self.protected:
            return "write"
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return "none"
        # Every token is compared, each in constant time, so that the time reveals nothing.
        may_write = [_is_same(token, known) for known in self.write_tokens]
        may_read = [_is_same(token, known) for known in self.read_tokens]
        return "write" if any(may_write) else "read" if any(may_read) else "none"


@lru_cache(maxsize=64)  # every request asks, mostly for the same host
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host, an address or `localhost`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_host(host: str, settings: ServiceSettings) -> None:
    """Raise an error if other machines could use the service without a token."""
    if not is_loopback(host) and not settings.protected:
        raise PseudoqueryError(
            f"other machines can reach {host or 'every address'}; set tokens with "
            "PSEUDOQUERY_READ_TOKEN and PSEUDOQUERY_WRITE_TOKEN, or use --host 127.0.0.1."
        )


def _is_same(given: str, known: str) -> bool:
    # Digests have one length, so the time does not even reveal the token's length.
    digests = [hashlib.sha256(token.encode("utf-8", "surrogateescape")) for token in (given, known)]
    return hmac.compare_digest(digests[0].digest(), digests[1].digest())
