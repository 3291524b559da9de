"""The addresses that search answer as the library does, and refuse what they can't use."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import encode_queries
from pseudoquery.index import Index
from pseudoquery.records import Answer
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service.document_map import map_document
from pseudoquery.service.labels import labels
from pseudoquery.service.one_vector import search_one_vector
from tests.support.collection import DOCUMENTS
from tests.support.serving import Running, running

ROUNDING = 1e-5
"""Relative. A question encoded beside another differs in its last digits from the same one alone:
matrix products add in an order that depends on their shape. The scale multiplies the difference."""


def as_json(answer: Answer) -> dict[str, Any]:
    """What the service must say."""
    hits = [
        {
            "id": hit.id,
            "score": pytest.approx(hit.score, rel=ROUNDING),
            "title": hit.title,
            "text": hit.text,
            "metadata": dict(hit.metadata),
            "weights": pytest.approx(list(hit.weights), rel=ROUNDING),
            "relevance": hit.relevance,
        }
        for hit in answer.hits
    ]
    return {
        "query": answer.query,
        "hits": hits,
        "certified": answer.certified,
        "candidates": answer.candidates,
        "ranked_by": answer.ranked_by,
        "candidates_proven": answer.candidates_proven,
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
    {"settings": SearchSettings(rank_by="vectors", recall=1), "top": 1},
    {"settings": SearchSettings(token_depth=2), "top": 2},
    {"settings": SearchSettings(vector_share=0.5)},
    {"mode": "hybrid", "settings": SearchSettings(rank_by="vectors")},
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_search_answers_as_the_library_does(how: dict[str, Any], shared: Running) -> None:
    index: Index = shared.parts.index.index
    queries = ["who was the king of the city", "bird song"]
    expected = [as_json(answer) for answer in index.search_many(queries, **how)]
    asked = {name: value for name, value in how.items() if name != "settings"}
    settings = how.get("settings")
    if settings:
        asked |= asdict(settings)
        del asked["structure"], asked["recall_vectors"]
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
    encoded = index.encoded("id 3")
    assert encoded
    question = None if query is None else encode_queries(index.model, [query])[0]
    expected = asdict(map_document(encoded, question, index.representation))
    del expected["document"]["origin"]
    found = shared.ask("POST", "/map", {"id": "id 3", "query": query}).json
    assert found == json.loads(json.dumps(expected))


def test_map_refuses(shared: Running) -> None:
    assert shared.ask("POST", "/map", {"id": "x"}).status == 404
    for body in ({}, {"id": "id 1", "query": ""}, {"id": "id 1", "query": "x" * 4001}):
        assert shared.ask("POST", "/map", body).code == "invalid"
