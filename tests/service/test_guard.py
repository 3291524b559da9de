"""Who is let in, how much, and for how long; and the headers that every response has."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.service.recorder import SECURITY_HEADERS
from tests.support.serving import LINES, READ, WRITE, Running, chunks, lines, running

REQUESTS: dict[tuple[str, str], Any] = {
    ("POST", "/search"): {"query": "king"},
    ("POST", "/explain"): {"query": "king", "id": "id 1"},
    ("POST", "/compare"): {"query": "king"},
    ("POST", "/map"): {"id": "id 1"},
    ("GET", "/documents/id%201"): None,
    ("GET", "/info"): None,
    ("GET", "/metrics"): None,
    ("PUT", "/documents/a"): {"text": "x"},
    ("POST", "/documents"): lines({"id": "b", "text": "x"}),
    ("DELETE", "/documents/a"): None,
}
WRITES = {("PUT", "/documents/a"), ("POST", "/documents"), ("DELETE", "/documents/a")}
OPEN = ["/healthz", "/readyz", "/openapi.json", "/", "/page/main.js"]


def kind(path: str) -> str:
    return LINES if path == "/documents" else "application/json"


@pytest.fixture
def held(served: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Searches of the index wait until this is set."""
    free = threading.Event()
    search_many = Index.search_many

    def slow(self: Index, queries: Any, *arguments: Any, **how: Any) -> Any:
        if queries != ["ready"]:
            assert free.wait(30)
        return search_many(self, queries, *arguments, **how)

    monkeypatch.setattr(Index, "search_many", slow)
    yield free
    free.set()


# --- tokens


@pytest.mark.parametrize(
    ("tokens", "token", "reads", "writes"),
    [
        ({}, "", 200, 200),
        ({}, "anything", 200, 200),
        ({"read_tokens": (READ,), "write_tokens": (WRITE,)}, "", 401, 401),
        ({"read_tokens": (READ,), "write_tokens": (WRITE,)}, "wrong" + READ, 401, 401),
        ({"read_tokens": (READ,), "write_tokens": (WRITE,)}, READ, 200, 403),
        ({"read_tokens": (READ,), "write_tokens": (WRITE,)}, WRITE, 200, 200),
        ({"read_tokens": (READ,)}, READ, 200, 403),
        ({"read_tokens": (READ,)}, WRITE, 401, 401),
        ({"write_tokens": (WRITE,)}, "", 401, 401),
        ({"write_tokens": (WRITE,)}, WRITE, 200, 200),
    ],
)
def test_tokens(served: Index, tokens: Any, token: str, reads: int, writes: int) -> None:
    with running(served, **tokens) as service:
        for (method, path), body in REQUESTS.items():
            reply = service.ask(method, path, body, token=token, kind=kind(path))
            expected = writes if (method, path) in WRITES else reads
            assert reply.status == expected, (method, path, reply.content)
            if expected == 401:
                assert reply.code == "unauthorized"
                assert reply.headers["www-authenticate"] == "Bearer"
            if expected == 403:
                assert reply.code == "forbidden"
        for path in OPEN:
            assert service.ask("GET", path).status == 200
        if tokens:
            assert service.ask("POST", "/nowhere").status == 401


# --- other web pages


def test_every_response_has_the_security_headers(shared: Running) -> None:
    for method, path, body in [
        ("GET", "/healthz", None),
        ("POST", "/search", {"query": "king"}),
        ("POST", "/search", b"{"),
        ("GET", "/nowhere", None),
        ("PATCH", "/search", None),
        ("GET", "/metrics", None),
        ("GET", "/openapi.json", None),
        ("PUT", "/documents/a", b"x" * (5 << 20)),
    ]:
        reply = shared.ask(method, path, body)
        assert {name: reply.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert "access-control-allow-origin" not in reply.headers
    assert SECURITY_HEADERS["content-security-policy"].startswith("default-src 'none'")


PREFLIGHT = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}


def test_cross_origin_is_closed(shared: Running) -> None:
    reply = shared.ask("OPTIONS", "/search", headers=PREFLIGHT)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", [("https://example.org", "http://localhost:3000"), ("*",)])
def test_cross_origin_can_be_opened(served: Index, origins: tuple[str, ...]) -> None:
    with running(served, cors_origins=origins, read_tokens=(READ,)) as service:
        allowed = service.ask("OPTIONS", "/search", headers=PREFLIGHT)
        echoed = "*" if "*" in origins else "https://example.org"
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-origin"] == echoed
        assert "Authorization" in allowed.headers["access-control-allow-headers"]
        assert SECURITY_HEADERS.items() <= allowed.headers.items()
        assert "PUT" in allowed.headers["access-control-allow-methods"]
        origin = {"Origin": "https://example.org"}
        # A page may read the errors, too.
        for token, status in ((READ, 200), ("", 401)):
            reply = service.ask("POST", "/search", {"query": "a"}, token=token, headers=origin)
            assert reply.status == status
            assert reply.headers["access-control-allow-origin"] == echoed
            assert reply.headers["access-control-expose-headers"] == "Retry-After"
            if echoed != "*":  # the same answer for all origins need not say that it varies
                assert reply.headers["vary"] == "Origin"
        other = {**PREFLIGHT, "Origin": "https://evil.example.org"}
        refused = service.ask("OPTIONS", "/search", headers=other)
        assert refused.status == (200 if "*" in origins else 403)
        if "*" not in origins:
            assert refused.code == "forbidden"
            evil = {"Origin": "https://evil.example.org"}
            reply = service.ask("GET", "/info", token=READ, headers=evil)
            assert "access-control-allow-origin" not in reply.headers
        assert service.ask("OPTIONS", "/search").status == 401


@pytest.mark.parametrize("method_path", [one for one in REQUESTS if REQUESTS[one]])
@pytest.mark.parametrize("sent", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_page_can_not_send_what_needs_no_leave(
    shared: Running, method_path: tuple[str, str], sent: str
) -> None:
    """A browser sends these kinds of bodies to any origin unasked."""
    method, path = method_path
    reply = shared.ask(method, path, REQUESTS[method_path], kind=sent)
    assert (reply.status, reply.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize("method_path", list(REQUESTS))
@pytest.mark.parametrize("end", ["%0A", "%0D", "%20", "/", "%00"])
def test_what_looks_like_an_address_is_none(
    served: Index, method_path: tuple[str, str], end: str
) -> None:
    """Each rule follows from the address, so the service must not serve an address without one."""
    method, path = method_path
    if not path.startswith("/documents/"):  # there it is another id
        with running(served) as service:
            reply = service.ask(method, path + end, REQUESTS[method_path], kind="text/plain")
        if (path, end) != ("/documents", "/"):
            assert (reply.status, reply.code) == (404, "unknown_address")
        else:
            assert (reply.status, reply.code) == (405, "method_not_allowed")


def test_media_types(shared: Running) -> None:
    for sent in ("application/json; charset=utf-8", "Application/JSON"):
        assert shared.ask("POST", "/search", {"query": "king"}, kind=sent).status == 200
    zipped = {"Content-Encoding": "gzip"}
    assert shared.ask("POST", "/search", b"\x1f\x8b", headers=zipped).status == 415
    assert shared.ask("POST", "/documents", b"", kind="application/jsonl").status == 200


EVIL = (
    "localhost.evil",
    "[::1]evil.example",
    "[::1]:80evil.example",
    "[::1]]",
    "localhost:80@evil.example",
    "localhost:80:80",
    "localhost@evil.example",
    "[localhost]evil.example",
    "",
)


def test_a_name_that_was_pointed_at_this_machine(served: Index) -> None:
    with running(served) as service:
        for host in ("localhost", f"localhost:{service.port}", "127.0.0.1", "[::1]:80", "[::1]"):
            reply = service.ask("GET", "/info", headers={"Host": host})
            assert reply.status == 200, host
        for host in ("evil.example.org", "evil.example.org:80", "192.168.1.1", *EVIL):
            reply = service.ask("GET", "/info", headers={"Host": host})
            assert (reply.status, reply.code) == (421, "misdirected"), host
            assert service.ask("GET", "/healthz", headers={"Host": host}).status == 200
    with running(served, read_tokens=(READ,)) as service:
        named = {"Host": "search.example.org"}
        assert service.ask("GET", "/info", token=READ, headers=named).status == 200


# --- limits

SMALL = {
    "body_bytes": 2000,
    "bulk_bytes": 5000,
    "document_characters": 1000,
    "query_characters": 20,
    "queries": 2,
    "top": 3,
}


@pytest.fixture(scope="module")
def small(
    template: Path, tiny_model: MultiVectorEncoder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = shutil.copytree(template, tmp_path_factory.mktemp("small") / "index")
    with running(Index.open(folder, model=tiny_model), **SMALL) as started:
        yield started


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/search"),
        ("POST", "/explain"),
        ("PUT", "/documents/a"),
        ("DELETE", "/documents/a"),
    ],
)
def test_a_body_that_is_too_large(small: Running, method: str, path: str, size: int) -> None:
    content = json.dumps({"query": "x" * 2000, "text": "x" * 2000}).encode()
    body: Any = chunks(content, size) if size else content
    reply = small.ask(method, path, body)
    # Nobody reads the body of a DELETE; if its length is not known before, it is only drained.
    expected = 404 if method == "DELETE" and size else 413
    assert reply.status == expected
    if expected == 413:
        assert reply.code == "too_large"
        assert "2,000 bytes" in reply.message


@pytest.mark.parametrize("size", [0, 100])
def test_a_bulk_body_that_is_too_large(small: Running, size: int) -> None:
    content = lines(*({"text": "x", "id": "id 1"},) * 300)
    body: Any = chunks(content, size) if size else content
    reply = small.ask("POST", "/documents", body, kind=LINES)
    assert (reply.status, reply.code) == (413, "too_large")
    assert "5,000 bytes" in reply.message


def test_a_line_that_is_too_long(small: Running) -> None:
    content = lines({"id": "id 1", "text": "x"}, {"id": "b", "text": "x" * 3000})
    reply = small.ask("POST", "/documents", chunks(content, 500), kind=LINES)
    assert (reply.status, reply.code) == (413, "too_large")
    assert reply.message == "line 2 is longer than 2,000 bytes; nothing was stored."


def test_a_document_that_is_too_long(small: Running) -> None:
    body = {"text": "x" * 900, "title": "y" * 101}
    reply = small.ask("PUT", "/documents/a", body)
    assert (reply.status, reply.code) == (413, "too_large")
    assert reply.message == "the document 'a' has 1,001 characters; at most 1,000 are allowed."
    bulk = small.ask("POST", "/documents", lines({"id": "a", **body}), kind=LINES)
    assert bulk.status == 413
    assert bulk.message.startswith("line 1: the document 'a' has 1,001 characters")


def test_limits_of_a_search(small: Running) -> None:
    assert small.ask("POST", "/search", {"query": ["x" * 20] * 2, "top": 3}).status == 200
    for body in (
        {"query": "x" * 21},
        {"query": ["x"] * 3},
        {"query": "x", "top": 4},
    ):
        assert small.ask("POST", "/search", body).code == "invalid"
    assert small.ask("POST", "/explain", {"query": "x" * 21, "id": "id 1"}).code == "invalid"


def test_too_many_requests_at_once(served: Index, held: threading.Event) -> None:
    with running(served, concurrency=3) as service, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(service.ask, "POST", "/search", {"query": "king"}) for _ in range(3)]
        end = time.monotonic() + 10
        gauge = service.parts.metrics.in_progress
        while next(iter(gauge.collect())).samples[0].value < 3:
            assert time.monotonic() < end
        reply = service.ask("GET", "/info")
        assert (reply.status, reply.code) == (429, "overloaded")
        assert reply.headers["retry-after"] == "1"
        assert service.ask("GET", "/healthz").status == 200
        held.set()
        assert [one.result().status for one in waiting] == [200] * 3
        assert service.ask("GET", "/info").status == 200


def test_a_request_that_takes_too_long(served: Index, held: threading.Event) -> None:
    with running(served, seconds=0.2) as service:
        reply = service.ask("POST", "/search", {"query": "king"})
        assert (reply.status, reply.code) == (504, "timeout")
        assert "0.2 seconds" in reply.message
        assert reply.headers["retry-after"] == "1"
        held.set()
        assert service.ask("POST", "/search", {"query": "king"}).status == 200


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.03])
def test_time_that_runs_out_while_the_body_comes(
    served: Index, held: threading.Event, seconds: float
) -> None:
    """The end of the time and the body may come together; the request ends all the same."""
    with running(served, seconds=seconds) as service:
        replies = [service.ask("POST", "/search", {"query": "king"}) for _ in range(5)]
        held.set()
    assert {reply.status for reply in replies} <= {408, 504}


def send_slowly(port: int, path: str, sent: str) -> bytes:
    """Announce a body, and send none of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {sent}\r\n"
            "Connection: close\r\nContent-Length: 100\r\n\r\n".encode()
        )
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_a_body_that_does_not_come(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pseudoquery.service.exchange.DRAINED_SECONDS", 0.1)
    with running(served, seconds=0.2) as service:
        for path in ("/search", "/documents"):
            received = send_slowly(service.port, path, kind(path))
            assert received.startswith(b"HTTP/1.1 408 ")
            assert b'"code": "timeout"' in received
            assert b"content-security-policy" in received


def test_a_client_that_goes_away_is_no_error(served: Index) -> None:
    with running(served) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(
                b"POST /documents HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/x-ndjson\r\nContent-Length: 100\r\n\r\n{"
            )
        end = time.monotonic() + 10
        while b'status="499"' not in (found := service.ask("GET", "/metrics").content):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert b'status="500"' not in found


def test_a_client_that_waits_for_leave_is_told_at_once(shared: Running) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        connection.sendall(
            b"PUT /documents/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
