"""Errors have one form, whatever goes wrong, and the description says so."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import IndexLockedError
from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.service.served_index import ServedIndex
from tests.support.serving import Running, lines, running


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/index.html", 404, "unknown_address"),
        ("GET", "/docs", 404, "unknown_address"),
        ("GET", "/redoc", 404, "unknown_address"),
        ("GET", "/search/", 404, "unknown_address"),
        ("GET", "/documents", 405, "method_not_allowed"),
        ("GET", "/search", 405, "method_not_allowed"),
        ("PATCH", "/documents/a", 405, "method_not_allowed"),
        ("OPTIONS", "/search", 405, "method_not_allowed"),
        ("BREW", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_unknown_addresses_and_methods(
    shared: Running, method: str, path: str, status: int, code: str
) -> None:
    reply = shared.ask(method, path)
    assert (reply.status, reply.code) == (status, code)
    if status == 405:
        assert reply.headers["allow"]


def test_a_head_request_gets_no_body(shared: Running) -> None:
    assert shared.ask("HEAD", "/search").content == b""


def test_a_bug_is_one_sentence_without_a_traceback(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret text")

    monkeypatch.setattr(Index, "search_many", broken)
    monkeypatch.setattr(Index, "get", broken)
    monkeypatch.setattr(Index, "encoded", broken)
    monkeypatch.setattr(Index, "add", broken)
    monkeypatch.setattr(ServedIndex, "facts", broken)
    for method, path, body in [
        ("POST", "/search", {"query": "a"}),
        ("POST", "/explain", {"query": "a", "id": "x"}),
        ("POST", "/compare", {"query": "a"}),
        ("POST", "/map", {"id": "x"}),
        ("GET", "/documents/a", None),
        ("PUT", "/documents/a", {"text": "x"}),
        ("GET", "/info", None),
    ]:
        reply = service.ask(method, path, body)
        assert (reply.status, reply.code) == (500, "internal")
        assert reply.message == "an error inside the service; its log says where."
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert service.upload(lines({"id": "a", "text": "x"})).code == "internal"
    assert service.ask("GET", "/healthz").status == 200


def test_a_full_disk_is_told_and_searching_goes_on(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pseudoquery.storage.writer.write_segment", full)
    reply = service.ask("PUT", "/documents/a", {"text": "x"})
    assert (reply.status, reply.code) == (503, "unavailable")
    assert service.search("king")[0]["hits"]


def test_another_process_that_writes(
    served: Index, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.service.served_index.LOCK_PATIENCE", 0.1)
    with running(served) as service, Index.open(served.folder).store.writer():
        for reply in (
            service.ask("PUT", "/documents/a", {"text": "x"}),
            service.ask("DELETE", "/documents/id%201"),
            service.upload(lines({"id": "a", "text": "x"})),
        ):
            assert (reply.status, reply.code) == (503, "locked")
            assert reply.headers["retry-after"] == "1"
            assert "nothing was" in reply.message
        assert service.search("king")[0]["hits"]
        assert service.ask("GET", "/documents/id%201").status == 200
    assert served.get("a") is None


def test_a_short_write_of_another_process_is_waited_for(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, tries = Index.add, []

    def busy_twice(self: Index, documents: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise IndexLockedError("busy")
        return add(self, documents)

    monkeypatch.setattr(Index, "add", busy_twice)
    assert service.ask("PUT", "/documents/a", {"text": "x"}).status == 200
    assert len(tries) == 3


def test_what_another_process_writes_is_found(service: Running) -> None:
    index: Index = service.parts.index.index
    Index.open(index.folder, model=index.model).add([Document("other", "castle garden bridge")])
    assert service.search("castle garden bridge")[0]["hits"][0]["id"] == "other"
    with sqlite3.connect(index.folder / "index.sqlite") as database:
        assert database.execute("SELECT count(*) FROM documents").fetchone() == (31,)
    database.close()


def test_the_description_has_examples_and_one_form_of_error(shared: Running) -> None:
    described = shared.ask("GET", "/openapi.json").json
    paths = described["paths"]
    assert set(paths) == {
        "/search",
        "/explain",
        "/compare",
        "/map",
        "/documents",
        "/documents/{id}",
        "/info",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    schemas = described["components"]["schemas"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status != "200":
                    content = response["content"]["application/json"]
                    assert content["schema"]["$ref"].endswith("/ErrorAnswer")
            if "requestBody" in operation:
                (content,) = operation["requestBody"]["content"].values()
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                assert "example" in content or schemas[name]["examples"], (path, method)
    for example in schemas["SearchRequest"]["examples"]:
        shared.search(**example)
