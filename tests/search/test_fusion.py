from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.search.bm25 import match_expression
from pseudoquery.search.fusion import FUSIONS, RRF_CONSTANT, Fusion, fuse

TEXTS = (
    "The Eiffel Tower stands in Paris.",
    "Münchner Straße, naïve café",
    'AND OR NOT NEAR "quoted" title: text^2 snake_case * {x} + - 3.14',
)

rankings = st.lists(
    st.tuples(st.integers(0, 30), st.floats(-100, 100)), max_size=12, unique_by=lambda one: one[0]
).map(lambda scored: sorted(scored, key=lambda one: (-one[1], one[0])))


@pytest.fixture(scope="module")
def fulltext() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE fulltext USING fts5("
            "title, text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        connection.executemany(
            "INSERT INTO fulltext(title, text) VALUES ('', ?)", [(text,) for text in TEXTS]
        )
        yield connection


def matches(connection: sqlite3.Connection, query: str) -> list[int]:
    """Return the positions in TEXTS of what matches, as FolderSnapshot.fulltext asks for it."""
    expression = match_expression(query)
    if not expression:
        return []
    rows = connection.execute(
        "SELECT rowid, bm25(fulltext) FROM fulltext WHERE fulltext MATCH ? ORDER BY rowid",
        [expression],
    )
    return [row[0] - 1 for row in rows]


@given(query=st.text())
def test_no_text_is_a_syntax_error(fulltext: sqlite3.Connection, query: str) -> None:
    assert set(matches(fulltext, query)) <= {0, 1, 2}


syntax = st.sampled_from(
    (*"\"'*^:{}+-_\0\\;,() a²ﬁ😀\u0301", "--", "AND", "OR", "NOT", "NEAR", "NEAR(", "title", "漢字")
)


@given(pieces=st.lists(syntax, max_size=12), gap=st.sampled_from(["", " "]))
def test_no_query_syntax_is_a_syntax_error(
    fulltext: sqlite3.Connection, pieces: list[str], gap: str
) -> None:
    assert set(matches(fulltext, gap.join(pieces))) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Where is the Eiffel tower?", [0]),
        ("TOWERS", [0]),  # stemmed, and in any case
        ("munchner cafe", [1]),  # without diacritics
        ("Eiffel café", [0, 1]),  # any of the words
        ("NOT", [2]),  # a word, not an operator
        ("eiffel NOT tower", [0, 2]),
        ("title:nothing", [2]),  # no column filter: "title" is a word
        ("eiff*", []),  # no prefix search
        ("snake_case", [2]),
        ("_ eiffel", [0]),  # a word without any token of its own
        ('"', []),
        ("?!.", []),
        ("", []),
        ("zebra", []),
    ],
)
def test_matches(fulltext: sqlite3.Connection, query: str, expected: list[int]) -> None:
    assert matches(fulltext, query) == expected


def test_a_very_long_question(fulltext: sqlite3.Connection) -> None:
    words = [f"word{number}" for number in range(20_000)]
    assert matches(fulltext, " ".join([*words, "eiffel"])) == [0]


def test_a_text_without_words_has_no_expression() -> None:
    assert match_expression("?! \0 -- \"'") == ""


def test_each_word_is_quoted_once() -> None:
    assert match_expression("who, who was it?") == '"who" OR "was" OR "it"'


def test_reciprocal_ranks_by_hand() -> None:
    dense, words = [(7, 0.9), (3, 0.8), (5, 0.1)], [(5, 12.0), (7, 3.0), (9, 1.0)]
    assert RRF_CONSTANT == 60
    fused = fuse(dense, words, "rrf", 0.5)
    assert [document for document, _ in fused] == [7, 5, 3, 9]
    by_hand = [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63]
    assert [score for _, score in fused] == pytest.approx(by_hand)


def test_weighted_by_hand() -> None:
    dense, words = [(7, 0.9), (3, 0.5), (5, 0.1)], [(5, 12.0), (7, 3.0), (9, 2.0)]
    fused = fuse(dense, words, "weighted", 0.75)
    assert [document for document, _ in fused] == [7, 3, 5, 9]
    by_hand = [0.75 * 1.0 + 0.25 * 0.1, 0.75 * 0.5, 0.25 * 1.0, 0.0]
    assert [score for _, score in fused] == pytest.approx(by_hand)


@given(rankings, rankings)
def test_full_weight_keeps_the_dense_order(
    dense: list[tuple[int, float]], words: list[tuple[int, float]]
) -> None:
    assert_order_kept(fuse(dense, words, "weighted", 1.0), dense)


@given(rankings, rankings)
def test_no_weight_keeps_the_order_of_the_words(
    dense: list[tuple[int, float]], words: list[tuple[int, float]]
) -> None:
    assert_order_kept(fuse(dense, words, "weighted", 0.0), words)


def assert_order_kept(fused: list[tuple[int, float]], ranking: list[tuple[int, float]]) -> None:
    """Scores that differ by less than a rounding error of their spread may change places."""
    own = dict(ranking)
    scores = [own[document] for document, _ in fused if document in own]
    spread = max(scores, default=0.0) - min(scores, default=0.0)
    assert all(one >= next_ - 1e-14 * spread for one, next_ in pairwise(scores))


@given(rankings, rankings, st.sampled_from(FUSIONS), st.floats(0, 1))
def test_every_document_once_best_first(
    dense: list[tuple[int, float]],
    words: list[tuple[int, float]],
    fusion: Fusion,
    weight: float,
) -> None:
    fused = fuse(dense, words, fusion, weight)
    assert sorted(document for document, _ in fused) == sorted(dict(dense) | dict(words))
    found = {document: position for position, document in enumerate(dict(dense) | dict(words))}
    assert fused == sorted(fused, key=lambda one: (-one[1], found[one[0]])), "the dense one first"


@pytest.mark.parametrize("fusion", FUSIONS)
def test_among_equals_the_dense_ranking_decides(fusion: Fusion) -> None:
    fused = fuse([(9, 1.0), (4, 0.5)], [(4, 2.0), (9, 1.0)], fusion, 0.5)
    assert [document for document, _ in fused] == [9, 4]
    assert fused[0][1] == fused[1][1]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_an_empty_ranking_leaves_the_other(fusion: Fusion) -> None:
    ranking = [(8, 3.0), (2, 1.0), (5, 0.5)]
    assert [document for document, _ in fuse(ranking, [], fusion, 0.5)] == [8, 2, 5]
    assert [document for document, _ in fuse([], ranking, fusion, 0.5)] == [8, 2, 5]
    assert fuse([], [], fusion, 0.5) == []


def test_an_only_hit_counts_as_the_best() -> None:
    words = [(1, 9.0), (2, 5.0), (3, 1.0)]
    assert fuse([(7, 0.3)], words, "weighted", 0.8)[0] == (7, 0.8)
    equal = fuse([(7, 0.3), (8, 0.3)], words, "weighted", 0.8)
    assert equal[:2] == [(7, 0.8), (8, 0.8)]


def test_the_weight_changes_the_result_of_a_weighted_fusion_only() -> None:
    dense, words = [(1, 1.0), (2, 0.0)], [(2, 1.0), (1, 0.0)]
    assert fuse(dense, words, "weighted", 0.9) != fuse(dense, words, "weighted", 0.1)
    assert fuse(dense, words, "rrf", 0.9) == fuse(dense, words, "rrf", 0.1)
