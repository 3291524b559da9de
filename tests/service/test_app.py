"""Every address of the service: what it answers, and what it refuses, in one form."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sentence_transformers import MultiVectorEncoder

from pseudoquery.errors import IndexLockedError
from pseudoquery.index import Index
from pseudoquery.records import Answer, Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service.document_map import map_document
from pseudoquery.service.labels import labels
from pseudoquery.service.one_vector import search_one_vector
from pseudoquery.service.served_index import ServedIndex
from pseudoquery.version import VERSION
from tests.support.collection import DOCUMENTS
from tests.support.serving import LINES, Reply, Running, chunks, lines, running


@pytest.fixture
def service(served: Index) -> Iterator[Running]:
    with running(served) as started:
        yield started


@pytest.fixture(scope="module")
def shared(template: Path, tiny_model: MultiVectorEncoder) -> Iterator[Running]:
    """A service whose index is not to be changed."""
    with running(Index.open(template, model=tiny_model)) as started:
        yield started


def as_json(answer: Answer) -> dict[str, Any]:
    """What the service must say."""
    hits = [
        {
            "id": hit.id,
            "score": pytest.approx(hit.score),
            "title": hit.title,
            "text": hit.text,
            "metadata": dict(hit.metadata),
            "weights": pytest.approx(list(hit.weights)),
        }
        for hit in answer.hits
    ]
    return {
        "query": answer.query,
        "hits": hits,
        "certified": answer.certified,
        "candidates": answer.candidates,
    }


# --- search

HOW: list[dict[str, Any]] = [
    {},
    {"top": 3},
    {"top": 100, "exact": True},
    {"where": {"n": {">=": 5, "<": 9}}},
    {"where": {"tags": ["river", "king"], "even": True}},
    {"where": {"id": "it's not there"}},
    {"mode": "bm25"},
    {"mode": "hybrid"},
    {"mode": "hybrid", "top": 5, "settings": SearchSettings(fusion="weighted", weight=0.9)},
    {"mode": "hybrid", "settings": SearchSettings(fusion_depth=1)},
    {"settings": SearchSettings(recall=1), "top": 1},
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_search_answers_as_the_library_does(how: dict[str, Any], shared: Running) -> None:
    index: Index = shared.parts.index.index
    queries = ["who was the king of the city", "bird song"]
    expected = [as_json(answer) for answer in index.search_many(queries, **how)]
    asked = {name: value for name, value in how.items() if name != "settings"}
    settings = how.get("settings")
    if settings:
        names = ("fusion", "weight", "recall", "fusion_depth")
        asked |= {name: getattr(settings, name) for name in names}
    assert shared.search(queries, **asked) == expected
    assert shared.search(queries[1], **asked) == expected[1:]


def test_search_without_text(service: Running) -> None:
    (answer,) = service.search("king", include_text=False)
    assert all(hit["text"] is None and hit["metadata"] for hit in answer["hits"])


def test_search_in_an_empty_index(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    with running(Index.create(tmp_path / "empty", model=tiny_model)) as service:
        for mode in ("dense", "bm25", "hybrid"):
            assert service.search("king", mode=mode)[0]["hits"] == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "query: "),
        ({"query": ""}, "the query is empty"),
        ({"query": " \n"}, "the query is empty"),
        ({"query": []}, "query: "),
        ({"query": ["a", ""]}, "the query is empty"),
        ({"query": 7}, "query: "),
        ({"query": ["a", None]}, "query: "),
        ({"query": "a", "top": 0}, "top: "),
        ({"query": "a", "top": 101}, "at most 100 is allowed"),
        ({"query": "a", "top": "5"}, "top: "),
        ({"query": "a", "top": 1.5}, "top: "),
        ({"query": "a", "top": True}, "top: "),
        ({"query": "a", "mode": "magic"}, "mode: "),
        ({"query": "a", "fusion": "magic"}, "fusion: "),
        ({"query": "a", "weight": 2}, "weight: "),
        ({"query": "a", "recall": 0}, "recall: "),
        ({"query": "a", "recall": 10**9}, "recall: "),
        ({"query": "a", "fusion_depth": 10**9}, "fusion_depth: "),
        ({"query": "a", "structure": "hnsw"}, "structure: "),
        ({"query": "a", "where": []}, "where: "),
        ({"query": "a", "where": {"n": {"LIKE": 1}}}, "the filter on 'n' uses 'LIKE'"),
        ({"query": "a", "where": {"n": [[1]]}}, "the filter on 'n' compares with [1]"),
        ({"query": "a", "where": {"n": 2**70}}, "is too large"),
        ({"query": "a", "where": {"n": "\0"}}, "NUL"),
        ({"query": "a", "where": {str(n): n for n in range(51)}}, "more than 50 conditions"),
        ({"query": "x" * 4001}, "at most 4,000"),
        ({"query": ["a"] * 65}, "at most 64"),
        ([], "body: "),
        ("text", "body: "),
    ],
)
def test_searches_that_are_refused(shared: Running, body: Any, said: str) -> None:
    reply = shared.ask("POST", "/search", body)
    assert (reply.status, reply.code) == (422, "invalid")
    assert said in reply.message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b'{"query": "\\ud800"}',
        b'{"query": "a", "where": {"\\ud800": 1}}',
        b'{"query": "a", "where": {"n": "\\ud800"}}',
        b'{"query": "a", "weight": NaN}',
        b'{"query": "a", "where": {"n": NaN}}',
        b'{"query": "a", "top": 1e400}',
        b'{"query": "a", "top": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("path", ["/search", "/explain"])
def test_bodies_that_are_no_json_or_hold_no_text(
    shared: Running, path: str, content: bytes
) -> None:
    reply = shared.ask("POST", path, content)
    assert reply.status in (400, 422)
    assert reply.code in ("bad_request", "invalid")


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", '"; DROP TABLE documents; --', "../../etc/passwd", "%00", "NEAR(a b)"]
)
def test_text_is_never_sql_or_a_path(shared: Running, text: str) -> None:
    for mode in ("bm25", "hybrid"):
        assert shared.search(text, mode=mode, where={text: text, "id": text})[0]["hits"] == []
    assert shared.ask("GET", f"/documents/{quote(text, safe='')}").status == 404
    assert shared.ask("GET", "/info").json["index"]["documents"] == len(DOCUMENTS)


# --- explain


def test_explain_answers_as_the_library_does(shared: Running) -> None:
    index: Index = shared.parts.index.index
    expected = index.explain("king of the city", "id 3")
    reply = shared.ask("POST", "/explain", {"query": "king of the city", "id": "id 3"})
    found = reply.json
    assert found["document"]["text"] == expected.document.text
    assert found["score"] == pytest.approx(expected.score)
    weights = [one["weight"] for one in found["pseudo_queries"]]
    assert weights == pytest.approx([one.weight for one in expected.pseudo_queries])
    assert found["pseudo_queries"][0]["spans"] == [
        {"start": span.start, "end": span.end} for span in expected.pseudo_queries[0].spans
    ]
    text = expected.document.text
    named = labels(text, [one.spans for one in expected.pseudo_queries])
    assert [one["label"] for one in found["pseudo_queries"]] == named
    assert expected.passage
    assert found["passage"] == {"start": expected.passage.start, "end": expected.passage.end}


def test_explain_a_document_without_vectors(service: Running) -> None:
    service.ask("PUT", "/documents/nothing", {"text": ""})
    reply = service.ask("POST", "/explain", {"query": "king", "id": "nothing"})
    assert reply.status == 200
    assert (reply.json["score"], reply.json["pseudo_queries"], reply.json["passage"]) == (
        None,
        [],
        None,
    )


def test_explain_refuses(shared: Running) -> None:
    missing = shared.ask("POST", "/explain", {"query": "king", "id": "x"})
    assert (missing.status, missing.code) == (404, "not_found")
    assert missing.message == "there is no document with the id 'x'."
    for body in ({"query": "king"}, {"query": " ", "id": "id 1"}, {"query": "x" * 4001, "id": "x"}):
        assert shared.ask("POST", "/explain", body).code == "invalid"


# --- compare and map


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_compare_answers_in_three_ways(shared: Running, mode: Any) -> None:
    index: Index = shared.parts.index.index
    asked = {"query": "who was the king", "top": 4, "exact": True, "mode": mode}
    found = shared.ask("POST", "/compare", asked).json
    assert found == {
        "pseudo_queries": as_json(index.search("who was the king", 4, mode=mode, exact=True)),
        "bm25": as_json(index.search("who was the king", 4, mode="bm25")),
        "one_vector": as_json(search_one_vector(index, "who was the king", 4)),
    }
    short = shared.ask("POST", "/compare", {**asked, "include_text": False}).json
    assert {hit["text"] for answer in short.values() for hit in answer["hits"]} == {None}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "query: "),
        ({"query": " "}, "the query is empty"),
        ({"query": "x" * 4001}, "at most 4,000"),
        ({"query": "a", "top": 101}, "at most 100 is allowed"),
        ({"query": "a", "top": 0}, "top: "),
        ({"query": "a", "mode": "bm25"}, "mode: "),
    ],
)
def test_comparisons_that_are_refused(shared: Running, body: Any, said: str) -> None:
    reply = shared.ask("POST", "/compare", body)
    assert (reply.status, reply.code) == (422, "invalid")
    assert said in reply.message


@pytest.mark.parametrize("query", ["king of the city", None])
def test_map_answers_as_the_library_does(shared: Running, query: str | None) -> None:
    index: Index = shared.parts.index.index
    document = index.get("id 3")
    assert document
    expected = asdict(map_document(index.model, document, query))
    del expected["document"]["origin"]
    found = shared.ask("POST", "/map", {"id": "id 3", "query": query}).json
    assert found == json.loads(json.dumps(expected))


def test_map_refuses(shared: Running) -> None:
    assert shared.ask("POST", "/map", {"id": "x"}).status == 404
    for body in ({}, {"id": "id 1", "query": ""}, {"id": "id 1", "query": "x" * 4001}):
        assert shared.ask("POST", "/map", body).code == "invalid"


# --- single documents

IDS = [
    "a",
    "a/b/c",
    "/",
    "//",
    "a/",
    ".",
    "..",
    "../x",
    "a?b#c",
    "%2F",
    "ü ☃",
    "\0",
    "+ &;",
    "x" * 5000,
]


@pytest.mark.parametrize("id_", IDS, ids=ascii)
def test_put_get_delete(service: Running, id_: str) -> None:
    path = f"/documents/{quote(id_, safe='')}"
    first = {"title": "t", "text": "moon <script>alert(1)</script>", "metadata": {"n": [1, None]}}
    assert service.ask("GET", path).status == 404
    assert service.ask("DELETE", path).code == "not_found"
    counted = service.ask("PUT", path, first)
    assert (counted.status, counted.json) == (200, outcome(added=1))
    stored = {"id": id_, **first}
    assert service.ask("GET", path).json == stored
    assert service.ask("PUT", path, stored).json == outcome(unchanged=1)
    assert service.ask("PUT", path, {"text": "sun"}).json == outcome(updated=1)
    bare = {"id": id_, "title": "", "text": "sun", "metadata": {}}
    assert service.ask("GET", path).json == bare
    if "\0" not in id_:  # a filter can't compare with that
        assert service.search("sun", where={"id": id_})[0]["hits"][0]["id"] == id_
    assert service.ask("DELETE", path).json == {"deleted": id_}
    assert service.ask("GET", path).status == 404
    assert service.search("sun", mode="bm25", top=1)[0]["hits"][0]["id"] != id_


def outcome(**counts: int) -> dict[str, int]:
    return {"added": 0, "updated": 0, "unchanged": 0, "cut": 0, **counts}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/documents/a", {}, "text: "),
        ("/documents/a", {"text": 1}, "text: "),
        ("/documents/a", {"text": "x", "title": None}, "title: "),
        ("/documents/a", {"text": "x", "metadata": []}, "metadata: "),
        ("/documents/a", {"text": "x", "metadata": {"n": 2**70}}, "64 bits"),
        ("/documents/a", {"text": "x", "topic": "law"}, "topic: "),
        ("/documents/a", {"text": "x", "id": "b"}, "not the one in the address"),
        ("/documents/", {"text": "x"}, "the id is empty"),
        ("/documents/%ff", {"text": "x"}, "not valid UTF-8"),
        ("/documents/%ed%a0%80", {"text": "x"}, "not valid UTF-8"),
        ("/documents/a", b'{"text": "\\ud800"}', "lone surrogate"),
        ("/documents/a", b'{"text": "x", "metadata": {"n": NaN}}', "finite"),
        ("/documents/a", b'{"text": "x", "metadata": {"\\ud800": 1}}', "Unicode"),
    ],
)
def test_documents_that_are_refused(shared: Running, path: str, body: Any, said: str) -> None:
    reply = shared.ask("PUT", path, body)
    assert (reply.status, reply.code) == (422, "invalid")
    assert said in reply.message


def test_ids_that_are_no_text_are_not_another_id(shared: Running) -> None:
    for method in ("GET", "DELETE"):
        assert shared.ask(method, "/documents/%ff").status == 422
        assert shared.ask(method, "/documents/").status == 404


def test_a_cut_document_is_told(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    index = Index.create(tmp_path / "cut", model=tiny_model, long="truncate")
    with running(index) as service:
        long = {"text": "river " * 500}
        assert service.ask("PUT", "/documents/a", long).json == outcome(added=1, cut=1)
        assert service.ask("PUT", "/documents/b", {"text": "x"}).json == outcome(added=1)
        body = lines({"id": "c", **long}, {"id": "d", "text": "x"})
        reply = service.ask("POST", "/documents", body, kind=LINES)
        assert reply.json == outcome(added=2, cut=1)


# --- many documents


def bulk(service: Running, body: Any, **how: Any) -> Reply:
    return service.ask("POST", "/documents", body, kind=LINES, **how)


def test_bulk(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = [
        {"id": "a", "text": "moon", "topic": "sky", "metadata": {"n": 1}},
        b"",
        {"_id": 7, "text": "sun\u2028star", "title": "T"},
        b"\r",
        {"id": "id 1", "text": "changed"},
        {"id": "a", "text": "moon", "topic": "sky", "metadata": {"n": 1}},
    ]
    assert bulk(service, b"\xef\xbb\xbf" + lines(*records)).json == outcome(
        added=2, updated=1, unchanged=1
    )
    assert service.ask("GET", "/documents/a").json["metadata"] == {"topic": "sky", "n": 1}
    assert service.ask("GET", "/documents/7").json["text"] == "sun\u2028star"
    assert bulk(service, b"").json == outcome()
    assert bulk(service, b'{"id": "z", "text": "no line end"}').json == outcome(added=1)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_bulk_in_chunks(service: Running, size: int) -> None:
    records = [{"id": f"ü{number}", "text": "river ☃ " * 3} for number in range(20)]
    assert bulk(service, chunks(lines(*records), size)).json == outcome(added=20)
    assert service.ask("GET", "/documents/%C3%BC19").json["text"] == "river ☃ " * 3


def test_an_error_in_bulk_names_the_line_and_keeps_what_was_stored(service: Running) -> None:
    records: list[Any] = [{"id": f"n{number}", "text": "moon"} for number in range(150)]
    records[140] = {"id": "no text"}
    reply = bulk(service, lines(*records))
    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.message.startswith('line 141: "text" is missing; ')
    assert reply.message.endswith("; documents up to line 128 have been stored.")
    index: Index = service.parts.index.index
    assert len(index) == len(DOCUMENTS) + 128
    assert index.get("n127")
    assert index.get("n128") is None
    first = bulk(service, lines(b"[]"))
    assert first.message == (
        'line 1: the JSON is an array, not an object; each line must be one JSON object with "id" '
        'and "text"; nothing was stored.'
    )


def test_a_part_of_a_file_says_where_it_begins(service: Running) -> None:
    def part(first: int, *records: Any) -> Reply:
        body = lines(*records)
        return service.ask("POST", f"/documents?first_line={first}", body, kind=LINES)

    assert part(1, {"id": "a", "text": "moon"}).json == outcome(added=1)
    wrong = part(2, b"", {"id": "b"})
    assert wrong.message.startswith('line 3: "text" is missing; ')
    assert wrong.message.endswith("; documents up to line 1 have been stored.")
    for first in ("0", "x", "-1", str(1 << 60)):
        reply = service.ask("POST", f"/documents?first_line={first}", b"", kind=LINES)
        assert reply.status == 422
        assert "first_line: " in reply.message


def test_bulk_takes_no_more_memory_than_a_batch(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been stored is let go: at no time do many documents wait."""
    waiting: list[int] = []
    add = Index.add

    def watched(self: Index, documents: Any) -> Any:
        waiting.append(len(documents))
        return add(self, documents)

    monkeypatch.setattr(Index, "add", watched)
    sent = 0

    def stream() -> Iterator[bytes]:
        nonlocal sent
        for number in range(300):
            sent += 1
            yield lines({"id": f"n{number}", "text": "moon"})

    assert bulk(service, stream()).json == outcome(added=300)
    assert sent == 300
    assert waiting == [64, 64, 64, 64, 44]


def test_batches_are_cut_by_length_too(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pseudoquery.service.uploads.BATCH_CHARACTERS", 10)
    records = [{"id": f"n{number}", "text": "moon sun"} for number in range(5)]
    reply = bulk(service, lines(*records, b"broken"))
    assert reply.message.endswith("documents up to line 4 have been stored.")


# --- facts


def test_info_tells_no_paths(service: Running, tiny_model_path: str) -> None:
    reply = service.ask("GET", "/info")
    facts = reply.json
    assert facts["version"] == VERSION
    assert facts["index"]["documents"] == len(DOCUMENTS)
    assert facts["index"]["representation"]["k"] == 4
    assert facts["limits"]["top"] == 100
    assert facts["index"]["model"] == Path(tiny_model_path).name
    assert str(Path(tiny_model_path).parent) not in reply.content.decode()
    assert "folder" not in facts["index"]


def test_health(service: Running) -> None:
    for path in ("/healthz", "/readyz"):
        reply = service.ask("GET", path)
        assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_not_ready_when_the_index_can_not_be_read(served: Index) -> None:
    with running(served) as service:
        database = served.folder / "index.sqlite"
        database.rename(served.folder / "away")
        reply = service.ask("GET", "/readyz")
        assert (reply.status, reply.code) == (503, "unavailable")
        assert reply.headers["retry-after"] == "1"
        assert service.ask("GET", "/healthz").status == 200
        searched = service.ask("POST", "/search", {"query": "king"})
        assert (searched.status, searched.code) == (503, "unavailable")
        assert str(served.folder) not in searched.message
        (served.folder / "away").rename(database)
        assert service.ask("GET", "/readyz").status == 200


def test_metrics(service: Running) -> None:
    service.search(["king", "queen"])
    service.ask("PUT", "/documents/secret%20id", {"text": "x"})
    service.ask("DELETE", "/documents/secret%20id")
    service.ask("GET", "/secret-path")
    reply = service.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    text = reply.content.decode()
    assert "secret" not in text
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["pseudoquery_requests_total", "/search", "200", "POST"] == 1
    assert samples["pseudoquery_requests_total", "404", "GET", "other"] == 1
    assert samples["pseudoquery_search_batch_queries_sum",] == 2
    assert samples["pseudoquery_documents_written_total", "added"] == 1
    assert samples["pseudoquery_documents_written_total", "deleted"] == 1
    assert samples["pseudoquery_documents",] == len(DOCUMENTS)
    assert samples["pseudoquery_waiting", "search"] == 0
    assert samples["pseudoquery_requests_in_progress",] == 1
    assert samples["pseudoquery_request_seconds_count", "/search"] == 1


# --- what goes wrong


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/index.html", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/redoc", 404, "not_found"),
        ("GET", "/search/", 404, "not_found"),
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
    assert bulk(service, lines({"id": "a", "text": "x"})).code == "internal"
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
            bulk(service, lines({"id": "a", "text": "x"})),
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
