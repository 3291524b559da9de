"""Large requests and answers are limited, and hold up nobody else."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service import document_routes, off_loop, search_routes, uploads
from pseudoquery.service.served_index import SearchJob
from tests.support.serving import LINES, Reply, Running, lines, running

LONG = "moon " * 40_000
"""A document of 200,000 characters."""
TOO_LARGE = "the answer is larger than 300,000 bytes, which is the limit; "
SMALLER = TOO_LARGE + "lower top, send fewer queries, or set include_text to false."


@pytest.fixture
def long_index(served: Index) -> Index:
    served.add([Document(f"long {number}", LONG) for number in range(3)])
    return served


@pytest.fixture
def limited(long_index: Index) -> Iterator[Running]:
    with running(long_index, response_bytes=300_000) as service:
        yield service


# --- limits


@pytest.mark.parametrize("mode", ["bm25", "dense"])
def test_an_answer_that_is_too_large(limited: Running, mode: str) -> None:
    asked = {"where": {"id": [f"long {number}" for number in range(3)]}, "mode": mode}
    for body in ({"query": "moon", "top": 2}, {"query": ["moon", "moon"], "top": 1}):
        reply = limited.ask("POST", "/search", {**asked, **body})
        assert (reply.status, reply.code, reply.message) == (413, "too_large", SMALLER)
        reply = limited.ask("POST", "/search", {**asked, **body, "include_text": False})
        assert reply.status == 200
    answer = limited.search("moon", top=1, **asked)[0]
    assert answer["hits"][0]["text"] == LONG  # it came in several pieces


def test_an_answer_that_only_its_json_makes_too_large(served: Index) -> None:
    """A line break is one character in the text, and two in the answer."""
    served.add([Document("lines", "moon\n" * 3 + "\n" * 1000)])
    with running(served, response_bytes=1500) as service:
        asked = {"query": "moon", "mode": "bm25", "where": {"id": "lines"}}
        reply = service.ask("POST", "/search", asked)
        assert (reply.status, reply.code) == (413, "too_large")


def test_other_answers_that_are_too_large(limited: Running) -> None:
    compared = limited.ask("POST", "/compare", {"query": "moon", "top": 3})
    assert (compared.status, compared.message) == (413, SMALLER)
    index: Index = limited.parts.index.index
    index.add([Document("huge", "moon " * 80_000)])
    for method, path, body in [
        ("GET", "/documents/huge", None),
        ("POST", "/explain", {"query": "moon", "id": "huge"}),
        ("POST", "/map", {"id": "huge"}),
    ]:
        reply = limited.ask(method, path, body)
        assert (reply.status, reply.code) == (413, "too_large"), path
        assert reply.message == TOO_LARGE + "whoever runs the service can raise --max-response."


def test_an_answer_that_is_too_large_spoils_no_other(limited: Running) -> None:
    index = limited.parts.index
    ids = [f"long {number}" for number in range(3)]

    def job(*queries: str) -> SearchJob:
        return SearchJob(queries, 1, {"id": ids}, False, "bm25", SearchSettings())

    jobs = [job("moon"), job(*["moon"] * 5), job("moon")]
    first, large, last = index._search_together(jobs)
    assert isinstance(large, Exception)
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert [answer.hits[0].text for answer in (*first, *last)] == [LONG, LONG]


def test_a_filter_with_too_many_values(service: Running) -> None:
    values = list(range(10_001))
    for where in (
        {"n": values},
        {"n": {"!=": values}},
        {"n": values[:5001], "even": values[5000:]},
    ):
        reply = service.ask("POST", "/search", {"query": "king", "where": where})
        assert (reply.status, reply.code) == (422, "invalid")
        assert reply.message.endswith("values; at most 10,000 are allowed.")
    assert service.search("king", where={"n": values[:10_000]})[0]["hits"]


def test_metadata_that_is_too_large(service: Running) -> None:
    body = {"text": "x", "metadata": {"key": ["ü" * 131_072]}}  # two bytes each
    reply = service.ask("PUT", "/documents/a", body)
    said = "the metadata of the document 'a' has 262,157 bytes; at most 262,144 are allowed"
    assert (reply.status, reply.code, reply.message) == (413, "too_large", f"{said}.")
    bulk = service.upload(lines({"id": "a", **body}))
    assert (bulk.status, bulk.message) == (413, f"line 1: {said}; nothing was stored.")
    body["metadata"] = {"key": ["ü" * 131_000]}
    assert service.ask("PUT", "/documents/a", body).status == 200


def test_bodies_that_are_meant_to_be_slow(service: Running) -> None:
    """Each of a million mistakes would be described on its own."""
    many = {"query": [1] * 1_000_000}
    assert service.ask("POST", "/search", many).message == (
        "1000000 queries; at most 64 are allowed."
    )
    fields = {f"k{number}": 1 for number in range(300_000)}
    for path in ("/search", "/explain", "/compare", "/map"):
        reply = service.ask("POST", path, fields)
        assert (reply.status, reply.code) == (422, "invalid")
        assert reply.message == "the body has 300,000 fields, which is far too many."
    assert service.ask("PUT", "/documents/a", fields).status == 422


def test_a_message_quotes_no_more_than_a_little(service: Running) -> None:
    deep = {"query": "king", "where": {"n": {"=": {"x": ["y" * 1_000_000]}}}}
    reply = service.ask("POST", "/search", deep)
    assert reply.status == 422
    assert reply.message.startswith("the filter on 'n' compares with {'x'")
    assert len(reply.message) < 2100


# --- nothing large is done where all clients wait


def post(service: Running, path: str, body: Any) -> Reply:
    return service.ask("POST", path, body)


LARGE_WORK: dict[str, tuple[Any, str, Callable[[Running], Reply]]] = {
    "a filter is compiled": (
        search_routes,
        "compile_filter",
        lambda service: post(
            service, "/search", {"query": "king", "where": {"n": ["x" * 10] * 9_000}}
        ),
    ),
    "a body is parsed": (
        off_loop,
        "parse_body",
        lambda service: post(service, "/explain", {"query": "king", "id": "x" * 100_000}),
    ),
    "answers are written": (
        search_routes,
        "answer_to_dict",
        lambda service: post(service, "/search", {"query": "moon", "where": {"id": "long 1"}}),
    ),
    "a comparison is written": (
        search_routes,
        "answer_to_dict",
        lambda service: post(service, "/compare", {"query": "moon"}),
    ),
    "an explanation is written": (
        search_routes,
        "explain_answer",
        lambda service: post(service, "/explain", {"query": "moon", "id": "long 1"}),
    ),
    "a map is written": (
        search_routes,
        "map_answer",
        lambda service: post(service, "/map", {"id": "long 1"}),
    ),
    "a document is written": (
        document_routes,
        "document_to_dict",
        lambda service: service.ask("GET", "/documents/long%201"),
    ),
    "a document is checked": (
        document_routes,
        "check_document",
        lambda service: service.ask("PUT", "/documents/a", {"text": "x", "metadata": {"a": 1}}),
    ),
    "a line is parsed": (
        uploads,
        "parse_document",
        lambda service: service.ask(
            "POST", "/documents", lines({"id": "a", "text": "x" * 100_000}), kind=LINES
        ),
    ),
}


@pytest.mark.parametrize("work", LARGE_WORK)
def test_others_are_answered_while(
    work: str, long_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, ask = LARGE_WORK[work]
    original = getattr(module, name)
    begun, free = threading.Event(), threading.Event()
    freed: list[bool] = []

    def held(*arguments: Any) -> Any:
        begun.set()
        freed.append(free.wait(20))
        return original(*arguments)

    monkeypatch.setattr(module, name, held)
    with running(long_index) as service, ThreadPoolExecutor(1) as pool:
        large = pool.submit(ask, service)
        assert begun.wait(20)
        assert service.ask("GET", "/healthz").status == 200
        free.set()
        assert large.result().status < 500
    assert freed
    assert all(freed), "the other client was answered only after the work"


def test_a_client_that_stops_reading_is_let_go(
    served: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.service.connection.LINGER_SECONDS", 0.1)
    served.add([Document(f"long {number}", "moon " * 200_000) for number in range(20)])
    question = json.dumps({"query": "moon", "mode": "bm25", "top": 20}).encode()
    with (
        running(served, seconds=2, head_seconds=0.5) as service,
        socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection,
    ):
        connection.sendall(
            b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(question), question)
        )
        wanted = [b'route="/search",status="499"} 1.0', b"pseudoquery_connections 0.0"]
        end = time.monotonic() + 40
        while wanted:
            assert time.monotonic() < end, wanted
            if wanted[0] in service.parts.metrics.as_text(0):
                wanted.pop(0)
            time.sleep(0.02)
