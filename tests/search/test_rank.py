"""Rankings without documents: the same as answers, by meaning, by words and by both."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import encode_queries
from pseudoquery.errors import QueryError
from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.search.fusion import RRF_CONSTANT, Fusion
from pseudoquery.search.settings import MODES, Mode, SearchSettings, check_search
from tests.support.collection import DOCUMENTS

QUERIES = ["who was the king of the city", "bird song", "???", "the old house by the river?"]
BY_VECTORS = SearchSettings(rank_by="vectors")
NARROW = SearchSettings(recall_vectors=2, rank_by="vectors")
"""Recalls so little that `exact` must do the work."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_model: MultiVectorEncoder) -> Index:
    made = Index.create(tmp_path_factory.mktemp("ranking") / "index", model=tiny_model)
    made.add(DOCUMENTS)
    made.delete(["id 5", "id 6"])
    made.add([Document("id 5", "the king of the river city", metadata={"n": 5, "even": False})])
    return made


def both(index: Index, queries: list[str], top: int, **how: Any) -> Any:
    """Rank, and check that answering gives the same to the last bit."""
    rankings = index.rank_many(queries, top, **how)
    answers = index.search_many(queries, top, **how)
    assert rankings == [[(hit.id, hit.score) for hit in answer.hits] for answer in answers]
    assert [answer.query for answer in answers] == queries
    return rankings


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("where", [None, {"even": True}, {"n": 5}, {"n": 99}])
@pytest.mark.parametrize(
    ("exact", "settings"),
    [(False, None), (True, None), (False, BY_VECTORS), (True, NARROW), (False, NARROW)],
)
def test_rankings_are_those_of_the_answers(
    index: Index, mode: Mode, where: Any, exact: bool, settings: SearchSettings | None
) -> None:
    both(index, QUERIES, 7, mode=mode, where=where, exact=exact, settings=settings)
    rankings = both(index, QUERIES, 100, mode=mode, where=where, exact=exact, settings=settings)
    allowed = {
        document.id
        for document in index.documents()
        if not where or all(document.metadata[name] == value for name, value in where.items())
    }
    for query, ranking in zip(QUERIES, rankings, strict=True):
        found = [id_ for id_, _ in ranking]
        assert len(found) == len(set(found))
        assert set(found) <= allowed
        assert [score for _, score in ranking] == sorted((one for _, one in ranking), reverse=True)
        if mode != "bm25" and (exact or settings is not NARROW):
            assert set(found) == allowed
        if mode == "bm25" and query == "???":
            assert not found


def test_every_way_gives_another_ranking(index: Index) -> None:
    query = QUERIES[3:]
    ways: list[dict[str, Any]] = [
        *({"mode": mode, "settings": BY_VECTORS} for mode in MODES),
        {"where": {"even": True}, "settings": BY_VECTORS},
        {"settings": NARROW},
        {"mode": "hybrid", "settings": replace(BY_VECTORS, fusion="rrf")},
        {"mode": "hybrid", "settings": replace(BY_VECTORS, fusion="weighted", weight=0.7)},
        {"mode": "hybrid", "settings": replace(BY_VECTORS, fusion_depth=5)},
        {},
        {"settings": SearchSettings(token_depth=5)},
        {"settings": SearchSettings(vector_share=0.0)},
        {"mode": "hybrid"},
    ]
    rankings = [tuple(both(index, query, 5, **how)[0]) for how in ways]
    assert len(set(rankings)) == len(ways)
    exact = both(index, query, 5, settings=NARROW, exact=True)[0]
    assert tuple(exact) == rankings[0] != rankings[4]
    assert both(index, query, 3, settings=BY_VECTORS)[0] == list(rankings[0][:3])


def test_one_query_does_not_depend_on_the_others(index: Index) -> None:
    for mode in MODES:
        together = index.rank_many(QUERIES, 9, mode=mode)  # type: ignore[arg-type]
        for query, ranking in zip(QUERIES, together, strict=True):
            alone = index.rank_many([query], 9, mode=mode)[0]  # type: ignore[arg-type]
            assert [id_ for id_, _ in alone] == [id_ for id_, _ in ranking]
            assert [score for _, score in alone] == pytest.approx([score for _, score in ranking])
            assert index.rank_many(query, 9, mode=mode) == [alone]  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_no_queries_and_no_documents(
    index: Index, tmp_path: Path, tiny_model: MultiVectorEncoder, mode: Mode
) -> None:
    assert index.rank_many([], mode=mode) == []
    assert index.search_many([], mode=mode) == []
    empty = Index.create(tmp_path / "empty", model=tiny_model)
    assert both(empty, QUERIES, 10, mode=mode) == [[], [], [], []]


# --- documents whose vectors are known

QUERY = "king"


@pytest.fixture
def known(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    """Two documents with the query's word, then two with its meaning."""
    made = Index.create(tmp_path / "known", model=tiny_model, tokens="none")
    vector = encode_queries(tiny_model, [QUERY])[0]
    texts = {"word 1": "king", "word 2": "king queen", "meaning 1": "red", "meaning 2": "blue"}
    parts = (-1.0, -1.0, 1.0, 0.5)
    made.add_vectors(
        [Document(id_, text) for id_, text in texts.items()],
        [(part * vector).astype(np.float32) for part in parts],
    )
    return made


def test_the_two_rankings_apart(known: Index) -> None:
    dense = [id_ for id_, _ in known.rank_many([QUERY])[0]]
    assert dense == ["meaning 1", "meaning 2", "word 1", "word 2"], "the first added of equals"
    assert [id_ for id_, _ in known.rank_many([QUERY], mode="bm25")[0]] == ["word 1", "word 2"]


@pytest.mark.parametrize("fusion", ["rrf", "weighted"])
def test_of_equals_the_one_found_by_meaning_comes_first(known: Index, fusion: Fusion) -> None:
    settings = SearchSettings(fusion=fusion, weight=0.5, fusion_depth=1)
    first = known.rank_many([QUERY], 1, mode="hybrid", settings=settings)[0]
    assert [id_ for id_, _ in first] == ["meaning 1"], "though the other was added before"
    two = known.rank_many([QUERY], 2, mode="hybrid", settings=settings)[0]
    assert [id_ for id_, _ in two] == ["meaning 1", "word 1"]
    assert two[0][1] == two[1][1]
    assert first == two[:1]
    if fusion == "rrf":
        assert two[0][1] == 1 / (RRF_CONSTANT + 1)


def test_fusion_depth_is_at_least_what_is_asked_for(known: Index) -> None:
    settings = SearchSettings(fusion="rrf", fusion_depth=1)
    everything = known.rank_many([QUERY], 4, mode="hybrid", settings=settings)[0]
    assert [id_ for id_, _ in everything] == ["word 1", "word 2", "meaning 1", "meaning 2"]


# --- what can't be asked


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"queries": ["fine", ""]}, "the query is empty"),
        ({"queries": ["\0 \n"]}, "the query is empty"),
        ({"queries": [None]}, "must be text, not NoneType"),
        ({"queries": ["\ud800"]}, "lone surrogate"),
        ({"top": 0}, "top is 0"),
        ({"top": 1.5}, "top is 1.5"),
        ({"mode": "sparse"}, "no mode 'sparse'; choose one of dense, bm25, hybrid"),
        ({"settings": SearchSettings(fusion="sum")}, "no fusion 'sum'"),  # type: ignore[arg-type]
        ({"settings": SearchSettings(weight=1.1)}, "weight is 1.1"),
        ({"settings": SearchSettings(weight=float("nan"))}, "weight is nan"),
        ({"settings": SearchSettings(recall=0)}, "recall is 0"),
        ({"settings": SearchSettings(recall_vectors=0)}, "recall_vectors is 0"),
        ({"settings": SearchSettings(fusion_depth=-1)}, "fusion_depth is -1"),
        ({"settings": SearchSettings(token_depth=-1)}, "token_depth is -1"),
        ({"settings": SearchSettings(vector_share=1.1)}, "vector_share is 1.1"),
        ({"settings": SearchSettings(vector_share=float("nan"))}, "vector_share is nan"),
    ],
)
def test_refused_in_one_sentence(index: Index, how: dict[str, Any], message: str) -> None:
    asked = {"queries": ["king"], "top": 3, "mode": "dense", "settings": SearchSettings(), **how}
    for call in (check_search, index.rank_many):
        with pytest.raises(QueryError, match=re.escape(message)) as raised:
            call(**asked)
        assert re.fullmatch(r"[^\n]+[.)]", str(raised.value))


@pytest.mark.parametrize("exact", [False, True])
def test_an_unknown_structure_is_refused(served: Index, exact: bool) -> None:
    with pytest.raises(QueryError, match="there is no structure 'annoy'"):
        served.search("king", exact=exact, settings=SearchSettings(structure="annoy"))


def test_exact_is_by_a_scan_unless_vectors_are_to_be_recalled(served: Index) -> None:
    structures = served.folder / "derived"
    by_documents = SearchSettings(structure="hnsw", rank_by="vectors")
    served.search("king", 3, exact=True, settings=by_documents)
    assert [path.suffixes for path in structures.iterdir()] == [[".codes", ".safetensors"]]
    by_vectors = SearchSettings(structure="hnsw", recall_vectors=5, rank_by="vectors")
    answer = served.search("king", 3, exact=True, settings=by_vectors)
    assert answer.certified
    assert (structures / "hnsw.faiss").exists()
