from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation, Score
from pseudoquery.method.scores import window
from pseudoquery.search.exact_scores import (
    exact_scores,
)
from pseudoquery.search.score_view import BLOCK_VECTORS
from pseudoquery.search.two_step import Ranking, RecallDepth, search
from pseudoquery.storage.vector_view import VectorView
from tests.storage.test_vector_view import view_of
from tests.support.search_cases import (
    KINDS,
    SCORES,
    Case,
    assert_exact,
    cases,
    random_view,
    seeds,
    structure,
    unit,
    vectors,
)
from tests.support.structures import build


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200)
@given(case=cases())
def test_what_is_certified_is_exact(kind: str, case: Case) -> None:
    rankings = case.search(structure(kind, case.view))
    assert len(rankings) == len(case.queries)
    for query, ranking in zip(case.queries, rankings, strict=True):
        if ranking.certified:
            available = sum(case.counted(number) for number in range(len(case.documents)))
            event(f"proven without scoring all: {ranking.candidates < available}")
            assert_exact(case, query, ranking)


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
def test_exact_is_always_certified_and_exact(kind: str, case: Case) -> None:
    rankings = case.search(structure(kind, case.view), exact=True)
    for query, ranking in zip(case.queries, rankings, strict=True):
        assert ranking.certified
        assert_exact(case, query, ranking)


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
def test_only_documents_that_count_are_found(kind: str, case: Case) -> None:
    for ranking in case.search(structure(kind, case.view)):
        assert all(case.counted(document) for document in ranking.documents.tolist())
        assert len(set(ranking.documents.tolist())) == len(ranking.documents) <= case.top
        assert len(ranking.documents) == min(case.top, ranking.candidates)
        assert np.isfinite(ranking.scores).all()
        pairs = list(zip(-ranking.scores, ranking.documents, strict=True))
        assert pairs == sorted(pairs)


@given(case=cases())
def test_more_than_there_is_gives_all(case: Case) -> None:
    everything = Case(
        case.documents, case.view, case.queries, case.settings, 100, RecallDepth(1), case.allowed
    )
    counted = [number for number in range(len(case.documents)) if case.counted(number)]
    for ranking in everything.search(structure("flat", case.view)):
        assert ranking.certified
        assert sorted(ranking.documents.tolist()) == counted
        assert ranking.candidates == len(counted)


def same(first: Sequence[Ranking], second: Sequence[Ranking]) -> bool:
    """Compare rankings to the last bit."""
    return all(
        one.documents.tolist() == other.documents.tolist()
        and one.scores.tolist() == other.scores.tolist()
        and (one.certified, one.candidates) == (other.certified, other.candidates)
        for one, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(case=cases(), exact=st.booleans())
def test_queries_together_equal_queries_alone(kind: str, case: Case, exact: bool) -> None:
    step = structure(kind, case.view)
    together = case.search(step, exact=exact)
    alone = [
        search(
            case.view,
            step,
            [query],
            case.settings,
            case.top,
            depth=case.depth,
            allowed=case.allowed,
            exact=exact,
        )[0]
        for query in case.queries
    ]
    for one, other in zip(together, alone, strict=True):
        assert one.documents.tolist() == other.documents.tolist()
        assert one.scores.tolist() == other.scores.tolist()
        assert one.certified == other.certified


def test_a_large_batch_equals_queries_alone() -> None:
    generator = np.random.default_rng(5)
    view = random_view(generator, 400, 4, 16)
    step = build("flat", view)
    queries = [unit(generator.normal(size=(1 + row % 2, 16))) for row in range(50)]
    together = search(view, step, queries, Representation(), 10, depth=RecallDepth(60))
    alone = [
        search(view, step, [one], Representation(), 10, depth=RecallDepth(60))[0] for one in queries
    ]
    for one, other in zip(together, alone, strict=True):
        assert one.documents.tolist() == other.documents.tolist()
        assert one.scores.tolist() == other.scores.tolist()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(case=cases(), exact=st.booleans())
def test_searching_changes_nothing(kind: str, case: Case, exact: bool) -> None:
    step = structure(kind, case.view)
    arrays = [
        case.view.ordinals,
        case.view.offsets,
        case.view.live,
        *(segment.vectors for segment in case.view.segments),
        *(segment.counts for segment in case.view.segments),
        *case.queries,
        *([] if case.allowed is None else [case.allowed]),
    ]
    copies = [array.copy() for array in arrays]
    error, total = step.error, step.total
    for array in arrays:
        array.flags.writeable = False
    first = case.search(step, exact=exact)
    assert same(first, case.search(step, exact=exact))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy, strict=True)
    assert (step.error, step.total) == (error, total)


@pytest.mark.parametrize("kind", ["flat", "flat8"])
@given(case=cases(), seed=seeds, count=st.integers(1, 20))
def test_added_and_deleted_documents_leave_no_trace(
    kind: str, case: Case, seed: int, count: int
) -> None:
    assume(case.view.vector_count)
    dimension = case.queries[0].shape[1]
    dtype = case.view.segments[0].vectors.dtype.name
    generator = np.random.default_rng(seed)
    length = case.view.norm or 1.0
    extra = [
        length * vectors(generator, 1 + number % 9, dimension, coarse=False)
        for number in range(count)
    ]
    size = len(case.documents)
    dead = [*np.flatnonzero(~case.view.live).tolist(), *range(size, size + count)]
    view = view_of(
        [*case.documents, *extra], dimension=dimension, borders=[size], dead=dead, dtype=dtype
    )
    allowed = None
    if case.allowed is not None:
        allowed = np.concatenate([case.allowed, np.ones(count, dtype=bool)])
    changed = Case(
        [*case.documents, *extra], view, case.queries, case.settings, case.top, case.depth, allowed
    )
    before = case.search(build(kind, case.view), exact=True)
    after = changed.search(build(kind, view), exact=True)
    for query, one, other in zip(case.queries, before, after, strict=True):
        assert_exact(changed, query, other)
        assert other.documents.tolist() == one.documents.tolist()
        assert other.scores.tolist() == one.scores.tolist()


@pytest.mark.parametrize("kind", ["flat", "flat8"])
@pytest.mark.parametrize("score", SCORES)
def test_most_searches_are_certified(kind: str, score: Score) -> None:
    certified = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        view = random_view(generator, 500, 4, 16)
        query = unit(generator.normal(size=(1, 16)))
        ranking = search(
            view, build(kind, view), [query], Representation(score=score), 10, depth=RecallDepth(50)
        )[0]
        assert ranking.candidates < 500
        certified.append(ranking.certified)
    assert np.mean(certified) >= 0.5


def deceptive(count: int, k: int) -> tuple[VectorView, NDArray[np.float32]]:
    """Make documents with one good vector among bad ones, then one with a single decent vector.

    With s_1 = m and k - 1 dots at m - 1 - W, the score falls as far below m as it can.
    """
    good, bad = 1.0, 1.0 - 1.0 - window(k)
    decoy = np.array([[good], *[[bad]] * (k - 1)])
    return view_of([*[decoy] * count, np.array([[0.5]])], dimension=1), np.ones((1, 1), np.float32)


def test_an_uncertified_answer_can_be_wrong_and_says_so() -> None:
    view, query = deceptive(count=20, k=8)
    ours = Representation(scale=1.0)
    assert exact_scores(view, query, np.array([0]), ours)[0] == pytest.approx(1.0 - window(8))
    step = build("flat", view)
    hasty = search(view, step, [query], ours, 1, depth=RecallDepth(5))[0]
    assert not hasty.certified
    assert hasty.documents.tolist() != [20]
    proven = search(view, step, [query], ours, 1, depth=RecallDepth(5), exact=True)[0]
    assert proven.certified
    assert proven.documents.tolist() == [20]
    assert proven.scores.tolist() == pytest.approx([0.5])
    deep = search(view, step, [query], ours, 1, depth=RecallDepth(21))[0]
    assert deep.certified
    assert deep.documents.tolist() == [20]


def test_without_softmax_the_same_answer_is_right_but_for_ties() -> None:
    view, query = deceptive(count=20, k=8)
    ours = Representation(scale=1.0, score="max")
    step = build("flat", view)
    # The 20 largest dots are all equal: no proof that the first of them was found.
    assert not search(view, step, [query], ours, 1, depth=RecallDepth(5))[0].certified
    assert search(view, step, [query], ours, 1, exact=True)[0].documents.tolist() == [0]


def test_fewer_documents_than_asked_for_are_no_proof() -> None:
    view = view_of([np.array([[5.0], [1.0]]), np.array([[0.5]])], dimension=1)
    query = np.ones((1, 1), dtype=np.float32)
    step = build("flat", view)
    # The two best vectors are of one document, whose score is far above all other dots.
    for top, certified in ((1, True), (2, False)):
        ranking = search(view, step, [query], Representation(), top, depth=RecallDepth(1, 2))[0]
        assert ranking.documents.tolist() == [0]
        assert ranking.certified == certified


def test_a_scan_is_proven_where_a_first_step_is_not() -> None:
    view, query = deceptive(count=20, k=8)
    ranking = search(view, build("flat8", view), [query], Representation(scale=1.0), 1)[0]
    assert ranking.certified
    assert ranking.documents.tolist() == [20]
    assert ranking.candidates == 1


def test_what_quantisation_blurs_is_scored() -> None:
    # The second number stretches the 127 steps of eight bits; the query does not see it.
    blurred = np.linspace(0.1, 0.38, 12)
    documents = [np.array([[value, 100.0]]) for value in (*blurred, -2.0)]
    view = view_of(documents, dimension=2)
    query = np.array([[1.0, 0.0]], dtype=np.float32)
    ours = Representation(scale=1.0)
    scan = build("flat8", view)
    by_code = scan.search(query, 13, None)
    assert len(set(by_code.dots[0, :12].tolist())) == 1, "the codes don't tell them apart"
    ranking = search(view, scan, [query], ours, 1)[0]
    assert ranking.documents.tolist() == [11]
    assert ranking.certified
    assert ranking.candidates == 12
    hasty = search(view, scan, [query], ours, 1, depth=RecallDepth(vectors=1))[0]
    assert hasty.documents.tolist() != [11]
    assert not hasty.certified


@settings(max_examples=200)
@given(case=cases())
def test_a_scan_by_vectors_certifies_only_what_is_exact(case: Case) -> None:
    """The paper's R in vectors makes a scan a first step like the others."""
    assume(case.view.vector_count)
    by_vectors = replace(case, depth=RecallDepth(vectors=case.depth.documents))
    for query, ranking in zip(
        case.queries, by_vectors.search(build("flat8", case.view)), strict=True
    ):
        if ranking.certified:
            assert_exact(case, query, ranking)


@pytest.mark.parametrize("kind", ["hnsw", "hnsw8", "ivf", "ivf8"])
def test_an_approximate_structure_proves_nothing_but_by_finding_all(kind: str) -> None:
    generator = np.random.default_rng(0)
    view = random_view(generator, 300, 2, 8)
    query = unit(generator.normal(size=(1, 8)))
    ours = Representation(score="max")
    certified = [
        search(view, step, [query], ours, 3, depth=RecallDepth(50))[0].certified
        for step in (build("flat", view), build(kind, view))
    ]
    assert certified == [True, False]
    few = np.arange(300) < 5
    assert search(view, build(kind, view), [query], ours, 3, allowed=few)[0].certified


def test_a_scan_and_the_scoring_go_on_over_many_blocks() -> None:
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 20, size=2500)
    counts[7] = BLOCK_VECTORS + 5  # larger than a block
    documents = [generator.normal(size=(count, 2)) for count in counts]
    assert counts.sum() > 2 * BLOCK_VECTORS
    view = view_of(documents, dimension=2, borders=[900], dead=[3, 4])
    query = generator.normal(size=(2, 2)).astype(np.float32)
    ours = Representation(scale=0.1)
    step = build("ivf", view)  # its answer is not certified, so the scan is needed
    ranking = search(view, step, [query], ours, 3000, depth=RecallDepth(1, 1), exact=True)[0]
    counted = np.flatnonzero((counts > 0) & view.live)
    scores = np.concatenate([exact_scores(view, query, counted[i : i + 1], ours) for i in range(5)])
    assert sorted(ranking.documents.tolist()) == counted.tolist()
    assert ranking.certified
    by_document = dict(zip(ranking.documents.tolist(), ranking.scores.tolist(), strict=True))
    assert [by_document[one] for one in counted[:5].tolist()] == scores.tolist()
    best = search(view, step, [query], ours, 10, depth=RecallDepth(1, 1), exact=True)[0]
    assert best.documents.tolist() == ranking.documents[:10].tolist()
    assert best.scores.tolist() == ranking.scores[:10].tolist()


def test_no_queries_no_rankings() -> None:
    view = random_view(np.random.default_rng(0), 5, 1, 2)
    for exact in (False, True):
        assert search(view, build("flat", view), [], Representation(), 3, exact=exact) == []
