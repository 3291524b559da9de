"""Haystack finds what the index finds, in pipelines that can be written down and read again."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import READ, WRITE, running

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it is read when haystack is imported
from haystack import Document, Pipeline
from haystack.components.joiners import DocumentJoiner
from haystack.components.retrievers import MultiQueryTextRetriever

from pseudoquery.client import Client
from pseudoquery.errors import IndexFolderError, QueryError
from pseudoquery.index import Index
from pseudoquery.integrations.haystack import PseudoqueryRetriever
from pseudoquery.records import Answer


def check(found: list[Document], expected: Answer) -> None:
    assert [one.id for one in found] == [hit.id for hit in expected.hits]
    for one, hit in zip(found, expected.hits, strict=True):
        titled = {"title": hit.title} if hit.title else {}
        assert one.content == hit.text
        assert one.meta == {**hit.metadata, **titled}
        assert one.score == pytest.approx(hit.score, rel=1e-5)


def test_an_index(served: Index, template: Path) -> None:
    for source in (served, template, str(template)):
        retriever = PseudoqueryRetriever(source, top_k=4)
        check(retriever.run("river")["documents"], served.search("river", 4))
        check(retriever.run("river", top_k=2)["documents"], served.search("river", 2))
    exact = PseudoqueryRetriever(served, exact=True, mode="hybrid")
    check(exact.run("river")["documents"], served.search("river", exact=True, mode="hybrid"))


def test_a_service(served: Index) -> None:
    with running(served) as service:
        for source in (service.url, Client(service.url)):
            found = PseudoqueryRetriever(source, filters={"n": [1, 2]}).run("river")["documents"]
            check(found, served.search("river", where={"n": [1, 2]}))


FILTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"field": "meta.n", "operator": "==", "value": 3}, {"n": 3}),
    ({"field": "n", "operator": "!=", "value": 3}, {"n": {"!=": 3}}),
    ({"field": "meta.n", "operator": "in", "value": [3, 4]}, {"n": [3, 4]}),
    ({"field": "meta.n", "operator": "not in", "value": [3, 4]}, {"n": {"!=": [3, 4]}}),
    ({"field": "id", "operator": "==", "value": "id 5"}, {"id": "id 5"}),
    (
        {
            "operator": "AND",
            "conditions": [
                {"field": "meta.n", "operator": ">=", "value": 3},
                {
                    "operator": "AND",
                    "conditions": [
                        {"field": "meta.n", "operator": "<", "value": 9},
                        {"field": "meta.even", "operator": "==", "value": True},
                    ],
                },
            ],
        },
        {"n": {">=": 3, "<": 9}, "even": True},
    ),
    ({"n": {"<": 3}}, {"n": {"<": 3}}),
    ({}, {}),
]


@pytest.mark.parametrize(("filters", "where"), FILTERS)
def test_filters(served: Index, filters: dict[str, Any], where: dict[str, Any]) -> None:
    expected = served.search("river", 30, where=where)
    assert expected.hits
    made = PseudoqueryRetriever(served, top_k=30, filters=filters)
    check(made.run("river")["documents"], expected)
    other = PseudoqueryRetriever(served, top_k=30, filters={"n": -1})
    check(other.run("river", filters=filters)["documents"], expected)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"operator": "OR", "conditions": []}, "join conditions by 'OR'; use AND"),
        ({"operator": "AND"}, "not in Haystack's form"),
        ({"operator": "==", "field": "meta.n"}, "not in Haystack's form"),
        ({"operator": "like", "field": "meta.n", "value": 3}, "uses 'like'; choose one of"),
        ({"operator": "AND", "conditions": ["n"]}, "not in Haystack's form"),
        ({"operator": "AND", "conditions": 2}, "not in Haystack's form"),
        (
            {
                "operator": "AND",
                "conditions": [
                    {"field": "meta.n", "operator": "==", "value": 3},
                    {"field": "meta.n", "operator": "in", "value": [3]},
                ],
            },
            "compare 'n' by = twice",
        ),
    ],
)
def test_filters_that_can_not_be_used(served: Index, filters: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        PseudoqueryRetriever(served, filters=filters).run("river")


def test_a_pipeline_is_written_and_read(served: Index, template: Path) -> None:
    pipeline = Pipeline()
    pipeline.add_component("find", PseudoqueryRetriever(template, top_k=3, filters={"n": [1, 2]}))
    pipeline.add_component("join", DocumentJoiner())
    pipeline.connect("find.documents", "join.documents")
    read = Pipeline.loads(pipeline.dumps(), allowed_modules=["pseudoquery.haystack"])
    assert read.to_dict() == pipeline.to_dict()
    found = read.run({"find": {"query": "river", "top_k": 1}})["join"]["documents"]
    check(found, served.search("river", 1, where={"n": [1, 2]}))


def test_what_is_written_has_no_token(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(served, read_tokens=(READ,), write_tokens=(WRITE,)) as service:
        made = PseudoqueryRetriever(Client(service.url, READ), top_k=2, exact=True, mode="hybrid")
        check(made.run("river")["documents"], served.search("river", 2, exact=True, mode="hybrid"))
        written = made.to_dict()
        assert READ not in str(written)
        monkeypatch.setenv("PSEUDOQUERY_TOKEN", READ)
        again = PseudoqueryRetriever.from_dict(written)
        assert again.to_dict() == written
        assert again.run("river") == made.run("river")
    assert PseudoqueryRetriever(served).to_dict()["init_parameters"]["source"] == str(served.folder)


def test_async_and_several_queries(served: Index) -> None:
    retriever = PseudoqueryRetriever(served, top_k=3)
    queries = ["river", "bird song", "king", "moon"] * 4

    async def all_at_once() -> list[dict[str, list[Document]]]:
        return await asyncio.gather(*(retriever.run_async(query) for query in queries))

    for query, found in zip(queries, asyncio.run(all_at_once()), strict=True):
        check(found["documents"], served.search(query, 3))
    several = MultiQueryTextRetriever(retriever=retriever).run(queries=["river", "king"])
    ids = {one.id for one in several["documents"]}
    assert ids == {hit.id for query in ("river", "king") for hit in served.search(query, 3).hits}


def test_an_index_is_opened_when_it_is_needed(tmp_path: Path) -> None:
    retriever = PseudoqueryRetriever(tmp_path / "none")
    with pytest.raises(IndexFolderError):
        retriever.warm_up()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pseudoquery.integrations.haystack")
    monkeypatch.setitem(sys.modules, "haystack", None)
    with pytest.raises(ImportError, match=r"pip install 'pseudoquery\[haystack\]'$"):
        importlib.import_module("pseudoquery.integrations.haystack")
