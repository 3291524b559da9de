"""Who may do what, and which settings are refused."""

from __future__ import annotations

from typing import Any

import pytest

from pseudoquery.errors import PseudoqueryError
from pseudoquery.service.settings import ServiceSettings, check_host, is_loopback
from tests.support.serving import READ, WRITE

BOTH = ServiceSettings(read_tokens=(READ, "another-" + READ), write_tokens=(WRITE,))


@pytest.mark.parametrize(
    ("authorization", "access"),
    [
        ("", "none"),
        (READ, "none"),
        (f"Basic {READ}", "none"),
        (f"Bearer {READ}", "read"),
        (f"bearer another-{READ}", "read"),
        (f"Bearer {WRITE}", "write"),
        (f"Bearer {WRITE}x", "none"),
        (f"Bearer {WRITE} ", "none"),
        ("Bearer ", "none"),
        ("Bearer ÿ\udc80", "none"),
    ],
)
def test_access(authorization: str, access: str) -> None:
    assert BOTH.access(authorization) == access


def test_without_tokens_all_is_open_and_with_any_nothing_is() -> None:
    assert ServiceSettings().access("") == "write"
    assert ServiceSettings(read_tokens=(READ,)).access("") == "none"
    assert ServiceSettings(read_tokens=(READ,)).access(f"Bearer {READ}") == "read"
    assert ServiceSettings(write_tokens=(WRITE,)).access("") == "none"


def test_tokens_are_not_shown() -> None:
    assert READ not in repr(BOTH)
    assert WRITE not in repr(BOTH)
    assert not {"read_tokens", "write_tokens", "cors_origins"} & BOTH.limits().keys()
    assert BOTH.limits()["top"] == 100


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"read_tokens": ("short",)}, "at least 16 characters"),
        ({"write_tokens": ("",)}, "at least 16 characters"),
        ({"write_tokens": ("with spaces in between",)}, "without spaces"),
        ({"read_tokens": ("ünicode-is-not-for-headers",)}, "ASCII"),
        ({"read_tokens": (WRITE,), "write_tokens": (WRITE,)}, "also a write token"),
        ({"cors_origins": ("example.org",)}, "is not an origin"),
        ({"cors_origins": ("https://example.org/path",)}, "without a path"),
        ({"top": 0}, "top is 0"),
        ({"seconds": -1.0}, "seconds is -1.0"),
    ],
)
def test_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PseudoqueryError, match=said) as raised:
        ServiceSettings(**settings)
    assert not any(token and token in str(raised.value) for token in (READ, WRITE))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_host(host, ServiceSettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "example.org", "localhost.x"])
def test_any_other_address_needs_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(PseudoqueryError, match="PSEUDOQUERY_READ_TOKEN"):
        check_host(host, ServiceSettings())
    check_host(host, ServiceSettings(read_tokens=(READ,)))
