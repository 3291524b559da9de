"""What a service allows: who may ask and who may change, from where, and how much at once."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

from pseudoquery.errors import PseudoqueryError

Access = Literal["none", "read", "write"]

SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")
_SECRET_OR_LIST = ("read_tokens", "write_tokens", "cors_origins")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service allows: who may read and write, from where, and how much at once."""

    read_tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that may search and read."""
    write_tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that may also change documents. If only read tokens are set, nobody may."""
    cors_origins: tuple[str, ...] = ()
    """Web origins whose pages may use the service, such as https://example.org."""
    body_bytes: int = 4 << 20
    """Bytes in a request, and in a line of a bulk request."""
    bulk_bytes: int = 1 << 30
    """Bytes in a bulk request."""
    document_characters: int = 1_000_000
    """Characters in a document's title and text together."""
    query_characters: int = 4000
    """Characters in a question."""
    queries: int = 64
    """Questions in a request."""
    top: int = 100
    """Documents per question."""
    concurrency: int = 256
    """Requests in progress."""
    seconds: float = 30.0
    """Seconds for a request, or for each wait for more of a bulk request."""

    def __post_init__(self) -> None:
        for token in (*self.read_tokens, *self.write_tokens):
            if len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
                raise PseudoqueryError(
                    f"a token must have at least {SHORTEST_TOKEN} characters, and only ASCII ones "
                    "without spaces; make one with: openssl rand -hex 32"
                )
        if set(self.read_tokens) & set(self.write_tokens):
            raise PseudoqueryError(
                "a read token is also a write token; a write token may read anyway, so leave it "
                "out of the read tokens."
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
        """Whether tokens are needed."""
        return bool(self.read_tokens or self.write_tokens)

    def limits(self) -> dict[str, Any]:
        """List the limits by name."""
        names = [one.name for one in fields(self) if one.name not in _SECRET_OR_LIST]
        return {name: value for name, value in asdict(self).items() if name in names}

    def access(self, authorization: str) -> Access:
        """Say what the value of an Authorization header allows."""
        if not self.protected:
            return "write"
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return "none"
        # Every token is compared, each in constant time, so that the time taken says nothing.
        may_write = [_same(token, one) for one in self.write_tokens]
        may_read = [_same(token, one) for one in self.read_tokens]
        return "write" if any(may_write) else "read" if any(may_read) else "none"


@lru_cache(maxsize=64)  # every request asks, mostly for the same host
def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach a host, given as an address or as `localhost`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_host(host: str, settings: ServiceSettings) -> None:
    """Refuse to let other machines in without a token."""
    if not is_loopback(host) and not settings.protected:
        raise PseudoqueryError(
            f"{host or 'every address'} can be reached by other machines; set a token with "
            "PSEUDOQUERY_READ_TOKEN and PSEUDOQUERY_WRITE_TOKEN, or use --host 127.0.0.1."
        )


def _same(given: str, token: str) -> bool:
    # Digests are of one length, so not even the token's length is told.
    digests = [hashlib.sha256(one.encode("utf-8", "surrogateescape")) for one in (given, token)]
    return hmac.compare_digest(digests[0].digest(), digests[1].digest())
