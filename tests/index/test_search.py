"""Searching: modes, filters, settings, proofs, and what can't be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.errors import (
    QueryError,
)
from pseudoquery.index import Index
from pseudoquery.records import Added, Answer, Document
from pseudoquery.search.settings import SearchSettings
from tests.support.answers import QUERIES, ids, results
from tests.support.collection import DOCUMENTS, WORDS


def test_search_many_equals_search(index: Index) -> None:
    for how in (
        {},
        {"exact": True},
        {"mode": "bm25"},
        {"mode": "hybrid"},
        {"where": {"n": [1, 2]}},
    ):
        many = index.search_many(QUERIES, 5, **how)
        assert [answer.query for answer in many] == QUERIES
        for query, answer in zip(QUERIES, many, strict=True):
            single = index.search(query, 5, **how)
            assert ids(single) == ids(answer)
            assert [hit.score for hit in single.hits] == pytest.approx(
                [hit.score for hit in answer.hits], rel=1e-4
            )


def test_search_many_of_none_and_of_a_string(index: Index) -> None:
    assert index.search_many([]) == []
    assert len(index.search_many("bird song")) == 1


def test_scores_fall_and_weights_add_up(index: Index) -> None:
    answer = index.search(QUERIES[0], 30)
    scores = [hit.score for hit in answer.hits]
    assert len(scores) == 30
    assert scores == sorted(scores, reverse=True)
    for hit in answer.hits:
        assert sum(hit.weights) == pytest.approx(1)
        assert 1 <= len(hit.weights) <= 4


def test_filters_come_before_scoring(index: Index) -> None:
    """With a first step this narrow, a filter after it would leave nothing."""
    worst = ids(index.search(QUERIES[0], 30))[-1]
    number = int(worst.split()[1])
    narrow = SearchSettings(recall=1)
    for mode in ("dense", "hybrid"):
        found = index.search(QUERIES[0], 1, where={"n": number}, mode=mode, settings=narrow)
        assert ids(found) == [worst]
    even = index.search(QUERIES[0], 30, where={"even": True})
    assert sorted(ids(even)) == sorted(f"id {number}" for number in range(0, 30, 2))
    assert even.certified
    complete = [hit for hit in index.search(QUERIES[0], 30).hits if hit.metadata["even"]]
    assert [(hit.id, hit.score) for hit in even.hits] == [(hit.id, hit.score) for hit in complete]
    assert ids(index.search(QUERIES[0], where={"tags": "moon"})) == [f"id {WORDS.index('moon')}"]
    assert ids(index.search(QUERIES[0], where={"n": {">": 100}})) == []


def test_exact_is_certified_and_equals_brute_force(index: Index) -> None:
    scan = SearchSettings(structure="flat", recall=30, rank_by="vectors")
    brute = index.search(QUERIES[1], 30, settings=scan)
    assert brute.certified
    for structure in ("flat", "hnsw", "ivf8"):
        narrow = SearchSettings(structure=structure, recall=1, rank_by="vectors")
        answer = index.search(QUERIES[1], 3, exact=True, settings=narrow)
        assert answer.certified
        assert [(hit.id, hit.score) for hit in answer.hits] == [
            (hit.id, hit.score) for hit in brute.hits[:3]
        ]
    few = SearchSettings(structure="hnsw", recall=3, rank_by="vectors")
    assert not index.search(QUERIES[1], 3, settings=few).certified


def test_settings_of_the_first_step_change_it(index: Index) -> None:
    def candidates(**how: Any) -> int:
        settings = SearchSettings(structure="flat", rank_by="vectors", **how)
        return index.search(QUERIES[0], 1, settings=settings).candidates

    assert candidates(recall=30) == 30
    assert candidates(recall=2) < 30
    assert candidates(recall_vectors=1) == 1
    assert candidates(recall_vectors=10**6) == 30


def test_hybrid_finds_by_words_and_by_meaning(index: Index) -> None:
    index.add([Document("rare", "xylophone " + "moon " * 40)])
    words = index.search("xylophone", 1, mode="bm25")
    assert ids(words) == ["rare"]
    assert words.hits[0].weights == ()
    by_vectors = SearchSettings(rank_by="vectors", weight=0.5)
    hybrid = index.search("xylophone", 31, mode="hybrid", settings=by_vectors)
    nearest = ids(index.search("xylophone", 1, settings=by_vectors))
    assert ids(hybrid)[:2] == [*nearest, "rare"], "the best by meaning, and the best by words"
    ranks = index.search("xylophone", 31, mode="hybrid", settings=SearchSettings(fusion="rrf"))
    assert ids(ranks)[0] == "rare"
    assert len(hybrid.hits) == 31, "the others are found by meaning"
    depth = index.search("xylophone", 2, mode="hybrid", settings=SearchSettings(fusion_depth=2))
    assert len(depth.hits) == 2


def test_weight_moves_a_fusion_between_its_parts(index: Index) -> None:
    def order(weight: float) -> list[str]:
        how = SearchSettings(fusion="weighted", weight=weight)
        return ids(index.search("moon bird", 30, mode="hybrid", settings=how))

    dense = ids(index.search("moon bird", 30))
    words = {hit.id: hit.score for hit in index.search("moon bird", 30, mode="bm25").hits}
    above = [score for score in words.values() if score > min(words.values())]
    assert order(1.0)[:-1] == dense[:-1], "the last of a ranking gets nothing"
    assert [words.get(id_) for id_ in order(0.0)[: len(above)]] == above
    assert order(1.0) != order(0.0)


def test_the_dense_hit_comes_first_among_equals(index: Index) -> None:
    """With equal weights, the first of each ranking gets the same."""
    how = SearchSettings(fusion_depth=1, weight=0.5, rank_by="vectors")
    found = None
    for query in WORDS:
        dense = ids(index.search(query, 30, settings=how))
        words = ids(index.search(query, 30, mode="bm25"))
        if words and dense[0] not in words and words[0] not in dense[:5]:
            found = query, dense[0], words[0]
            break
    assert found
    query, dense_first, words_first = found
    fused = index.search(query, 1, mode="hybrid", settings=how)
    assert ids(fused) == [dense_first]
    assert fused.hits[0].weights
    two = index.search(query, 2, mode="hybrid", settings=replace(how, fusion_depth=2))
    assert ids(two) == [dense_first, words_first]


def test_titles_are_used(empty: Index) -> None:
    empty.add(
        [Document("a", "the people of the town"), Document("b", "the people of the town", "moon")]
    )
    assert ids(empty.search("moon", mode="bm25")) == ["b"]
    first, second = empty.search("moon", 2).hits
    assert first.score != second.score, "the title is encoded with the text"
    empty.add([Document("c", "", "sun and fire")])
    assert "c" in ids(empty.search("sun and fire"))


def test_documents_without_vectors(empty: Index) -> None:
    blank = [Document("empty", "", metadata={"blank": True}), Document("space", " \n\t ")]
    assert empty.add(blank) == Added(added=2)
    assert empty.search("moon") == Answer("moon", (), True, 0, "tokens", candidates_proven=True)
    assert empty.search("moon", mode="hybrid", exact=True).hits == ()
    empty.add(DOCUMENTS[:3])
    assert len(empty) == 5
    facts = empty.info()
    assert (facts["documents"], facts["without_vectors"]) == (5, 2)
    answer = empty.search("moon", 10)
    assert sorted(ids(answer)) == ["id 0", "id 1", "id 2"]
    assert answer.certified
    assert [document.id for document in empty.documents({"blank": True})] == ["empty"]
    assert empty.get("space") == blank[1]
    assert empty.explain("moon", "empty").pseudo_queries == ()
    assert empty.delete(["empty", "space"]) == ["empty", "space"]
    assert empty.verify() == []


def test_an_empty_index(empty: Index) -> None:
    for mode in ("dense", "bm25", "hybrid"):
        answer = empty.search("moon", mode=mode, exact=True)
        assert (answer.hits, answer.certified) == ((), True)
    assert list(empty.documents()) == []
    assert empty.info()["documents"] == 0
    assert empty.info()["vector_bytes_per_document"] == 0


def test_long_documents_are_read_whole_unless_truncation_is_asked_for(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    long = Document("long", "the king of the city " * 40 + "moon bird song")
    short = Document("short", "moon")
    whole = Index.create(tmp_path / "whole", model=tiny_model)
    cut = Index.create(tmp_path / "cut", model=tiny_model, long="truncate")
    assert whole.add([long, short]) == Added(added=2)
    assert cut.add([long, short]) == Added(added=2, cut=1)
    beginning = Document("long", "the king of the city " * 30)
    other = Index.create(tmp_path / "other", model=tiny_model, long="truncate")
    other.add([beginning, short])
    assert results(cut) == results(other), "what follows the first window plays no part"
    assert results(cut) != results(whole)
    assert Index.open(cut.folder).settings.long == "truncate"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": ""}, "the query is empty"),
        ({"query": " \n\0 "}, "the query is empty"),
        ({"query": 7}, "must be text, not int"),
        ({"query": "a \udc80"}, "lone surrogate"),
        ({"top": 0}, "top is 0"),
        ({"top": -1}, "top is -1"),
        ({"top": 2.5}, "top is 2.5"),
        ({"mode": "magic"}, "dense, bm25, hybrid"),
        ({"where": {"n": {"~": 1}}}, "the filter on 'n'"),
        ({"settings": SearchSettings(structure="tree")}, "there is no structure 'tree'"),
        ({"settings": SearchSettings(recall=0)}, "recall is 0"),
        ({"settings": SearchSettings(recall_vectors=0)}, "recall_vectors is 0"),
        ({"settings": SearchSettings(token_depth=0)}, "token_depth is 0"),
        ({"settings": SearchSettings(rank_by="words")}, "auto, tokens, vectors"),  # type: ignore[arg-type]
        ({"settings": SearchSettings(fusion_depth=0)}, "fusion_depth is 0"),
        ({"settings": SearchSettings(weight=1.5)}, "between 0 and 1"),
        ({"settings": SearchSettings(fusion="sum")}, "rrf, weighted"),  # type: ignore[arg-type]
    ],
)
def test_what_can_t_be_answered_is_refused(
    index: Index, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        index.search(**{"query": "moon", **changes})


def test_any_query_that_has_text_is_answered(index: Index) -> None:
    for query in ("😀", "שלום", "a\0b", '"', "AND OR NOT", "x" * 5000, "()*:^", "moon " * 500):
        for mode in ("dense", "bm25", "hybrid"):
            answer = index.search(query, 3, mode=mode)
            assert answer.query == query
            assert len(answer.hits) == 3 or mode == "bm25"


def test_top_may_be_larger_than_the_corpus(index: Index) -> None:
    for mode in ("dense", "hybrid"):
        assert len(index.search("moon", 10**6, mode=mode).hits) == 30
