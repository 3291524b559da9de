"""LangChain finds what the index finds, here and through a service, in threads and in a chain."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from pseudoquery.client import Client
from pseudoquery.encoding import model
from pseudoquery.errors import IndexFolderError, QueryError, ServiceError
from pseudoquery.index import Index
from pseudoquery.integrations.langchain import PseudoqueryRetriever
from pseudoquery.records import Answer
from tests.support.serving import running

HOWS: list[dict[str, Any]] = [
    {},
    {"top": 3, "where": {"n": {"<": 12}}},
    {"exact": True, "mode": "hybrid"},
]


def check(found: list[Document], expected: Answer) -> None:
    assert [one.id for one in found] == [hit.id for hit in expected.hits]
    for one, hit in zip(found, expected.hits, strict=True):
        titled = {"title": hit.title} if hit.title else {}
        score = one.metadata["relevance_score"]
        assert one.page_content == hit.text
        assert one.metadata == {**hit.metadata, **titled, "relevance_score": score}
        assert score == pytest.approx(hit.score, rel=1e-5)


@pytest.mark.parametrize("how", HOWS)
def test_an_index(served: Index, template: Path, how: dict[str, Any]) -> None:
    expected = served.search("river", **how)
    assert any(hit.title for hit in expected.hits)
    for source in (served, template, str(template)):
        check(PseudoqueryRetriever(source=source, **how).invoke("river"), expected)


def test_a_service(served: Index) -> None:
    with running(served) as service:
        for source in (service.url, Client(service.url)):
            for how in HOWS:
                retriever = PseudoqueryRetriever(source=source, **how)
                check(retriever.invoke("river"), served.search("river", **how))


def test_a_call_with_other_settings(served: Index) -> None:
    retriever = PseudoqueryRetriever(source=served, top=5)
    check(retriever.invoke("river", top=2, where={"n": 4}), served.search("river", where={"n": 4}))
    check(retriever.invoke("river"), served.search("river", 5))


def test_async_and_batches(served: Index) -> None:
    retriever = PseudoqueryRetriever(source=served)
    queries = ["river", "bird song", "king", "moon"] * 8

    async def all_at_once() -> list[list[Document]]:
        return await asyncio.gather(*(retriever.ainvoke(query) for query in queries))

    for found in (retriever.batch(queries), asyncio.run(all_at_once())):
        for query, one in zip(queries, found, strict=True):
            check(one, served.search(query))


def test_a_model_is_loaded_once(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, loaded = model.load_model, []

    def load_model(*arguments: Any) -> Any:
        loaded.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(model, "load_model", load_model)
    PseudoqueryRetriever(source=template).batch(["king", "river", "moon"] * 4)
    assert len(loaded) == 1


def test_in_a_chain(served: Index) -> None:
    retriever = PseudoqueryRetriever(source=served, top=1)
    chain = retriever | RunnableLambda(lambda found: found[0].id)
    assert chain.invoke("river") == served.search("river").hits[0].id


def test_errors(served: Index, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="the query is empty"):
        PseudoqueryRetriever(source=served).invoke(" ")
    with pytest.raises(IndexFolderError):
        PseudoqueryRetriever(source=tmp_path / "none").invoke("river")
    with pytest.raises(ServiceError, match="no answer from"):
        PseudoqueryRetriever(source="http://127.0.0.1:1").invoke("river")
    for wrong in ({"mode": "magic"}, {"tops": 3}):
        with pytest.raises(pydantic.ValidationError):
            PseudoqueryRetriever(source=served, **wrong)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pseudoquery.integrations.langchain")
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", None)
    with pytest.raises(ImportError, match=r"pip install 'pseudoquery\[langchain\]'$"):
        importlib.import_module("pseudoquery.integrations.langchain")
