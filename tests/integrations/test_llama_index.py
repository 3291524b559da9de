"""LlamaIndex finds what the index finds, here and through a service."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from pseudoquery.client import Client
from pseudoquery.errors import IndexFolderError, QueryError
from pseudoquery.index import Index
from pseudoquery.integrations.llama_index import PseudoqueryRetriever
from pseudoquery.records import Answer
from tests.support.serving import running

HOWS: list[dict[str, Any]] = [
    {},
    {"top": 3, "where": {"n": {"<": 12}}},
    {"exact": True, "mode": "hybrid"},
]


def check(found: list[NodeWithScore], expected: Answer) -> None:
    assert [one.node.node_id for one in found] == [hit.id for hit in expected.hits]
    for one, hit in zip(found, expected.hits, strict=True):
        titled = {"title": hit.title} if hit.title else {}
        assert one.node.get_content(MetadataMode.NONE) == hit.text
        assert one.node.metadata == {**hit.metadata, **titled}
        assert one.score == pytest.approx(hit.score, rel=1e-5)


@pytest.mark.parametrize("how", HOWS)
def test_an_index(served: Index, template: Path, how: dict[str, Any]) -> None:
    expected = served.search("river", **how)
    assert any(hit.title for hit in expected.hits)
    for source in (served, template, str(template)):
        retriever = PseudoqueryRetriever(source, **how)
        assert isinstance(retriever, BaseRetriever)
        check(retriever.retrieve("river"), expected)
        check(retriever.retrieve(QueryBundle("river")), expected)


def test_a_service(served: Index) -> None:
    with running(served) as service:
        for source in (service.url, Client(service.url)):
            for how in HOWS:
                found = PseudoqueryRetriever(source, **how).retrieve("river")
                check(found, served.search("river", **how))


def test_async(served: Index) -> None:
    retriever = PseudoqueryRetriever(served)
    queries = ["river", "bird song", "king", "moon"] * 4

    async def all_at_once() -> list[list[NodeWithScore]]:
        return await asyncio.gather(*(retriever.aretrieve(query) for query in queries))

    for query, found in zip(queries, asyncio.run(all_at_once()), strict=True):
        check(found, served.search(query))


def test_callbacks(served: Index) -> None:
    handler = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([handler])
    PseudoqueryRetriever(served, callback_manager=manager).retrieve("river")
    assert handler.get_event_pairs(CBEventType.RETRIEVE)


def test_errors(served: Index, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="the query is empty"):
        PseudoqueryRetriever(served).retrieve(" ")
    with pytest.raises(IndexFolderError):
        PseudoqueryRetriever(tmp_path / "none").retrieve("river")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pseudoquery.integrations.llama_index")
    monkeypatch.setitem(sys.modules, "llama_index.core.callbacks", None)
    with pytest.raises(ImportError, match=r"pip install 'pseudoquery\[llama-index\]'$"):
        importlib.import_module("pseudoquery.integrations.llama_index")
