from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation, Score
from pseudoquery.method.scores import document_score, window
from pseudoquery.search.error_bounds import rounding_error
from pseudoquery.search.exact_scores import (
    dots_of,
    exact_scores,
    pseudo_query_weights,
    score_of,
)
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.int8_scan import Int8Scan
from pseudoquery.search.score_view import BLOCK_VECTORS
from pseudoquery.search.structures import STRUCTURES
from pseudoquery.search.two_step import Ranking, RecallDepth, search
from pseudoquery.storage.vector_view import VectorView
from tests.storage.test_vector_view import stored, view_of
from tests.support.structures import build

KINDS = STRUCTURES[1:]
SCORES: tuple[Score, ...] = ("softmax", "max")
seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Case:
    """A corpus and what is asked of it."""

    documents: list[NDArray[Any]]
    view: VectorView
    queries: list[NDArray[np.float32]]
    settings: Representation
    top: int
    depth: RecallDepth
    allowed: NDArray[np.bool_] | None

    def counted(self, document: int) -> bool:
        """Say whether a document may be found at all."""
        permitted = self.allowed is None or bool(self.allowed[document])
        return permitted and bool(self.view.live[document]) and len(self.documents[document]) > 0

    def search(
        self, step: FaissIndex | Int8Scan, *, exact: bool = False, view: VectorView | None = None
    ) -> Any:
        return search(
            view or self.view,
            step,
            self.queries,
            self.settings,
            self.top,
            depth=self.depth,
            allowed=self.allowed,
            exact=exact,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a corpus with repeated vectors and repeated documents, some of them without vectors."""
    generator = np.random.default_rng(draw(seeds))
    dimension = draw(st.integers(1, 24))
    count = draw(st.integers(0, 60) | st.integers(30, 60))
    widest = draw(st.integers(1, 8))
    dtype = draw(st.sampled_from(["float16", "float32", "int8"]))
    length = 10.0 ** draw(st.floats(-3, 3))
    pool = vectors(generator, draw(st.integers(1, 200)), dimension, draw(st.booleans()))
    pool = stored(length * pool, dtype)
    documents: list[NDArray[Any]] = []
    repeats = draw(st.sampled_from([0.0, 0.3]))
    for _ in range(count):
        if documents and generator.random() < repeats:
            documents.append(documents[generator.integers(len(documents))])
        else:
            own = generator.integers(0, len(pool), generator.integers(0, widest + 1))
            documents.append(pool[own])
    share = draw(st.sampled_from([0.0, 0.1, 0.5]))
    view = view_of(
        documents,
        dimension=dimension,
        borders=draw(st.lists(st.integers(0, count), max_size=3)),
        dead=[number for number in range(count) if generator.random() < share],
        dtype=dtype,
    )
    asked = [
        (10.0 ** draw(st.floats(-3, 3)))
        * vectors(generator, draw(st.integers(1, 4)), dimension, draw(st.booleans()))
        for _ in range(draw(st.integers(1, 3)))
    ]
    permitted = draw(st.sampled_from([None, None, 0.0, 0.2, 0.8]))
    return Case(
        documents,
        view,
        [query.astype(np.float32) for query in asked],
        Representation(score=draw(st.sampled_from(SCORES)), scale=draw(st.floats(0.1, 100))),
        draw(st.integers(1, 4) | st.integers(1, 70)),
        RecallDepth(
            draw(st.integers(1, 8) | st.integers(1, 40)),
            draw(st.none() | st.none() | st.integers(1, 100)),
        ),
        None if permitted is None else generator.random(count) < permitted,
    )


def vectors(
    generator: np.random.Generator, count: int, dimension: int, coarse: bool
) -> NDArray[Any]:
    """Draw vectors; coarse ones have many dot products in common."""
    if coarse:
        return np.asarray(generator.integers(-2, 3, size=(count, dimension)) / 2)
    return np.asarray(generator.normal(size=(count, dimension)) / dimension**0.5)


def slow_score(
    query: NDArray[np.float32], document: NDArray[Any], settings: Representation
) -> float:
    """Score a document by Eq. 4-6 or MaxSim, one number after the other."""
    total = 0.0
    for vector in query.tolist():
        dots = [
            settings.scale * sum(x * y for x, y in zip(vector, own, strict=True))
            for own in document.astype(np.float64).tolist()
        ]
        if settings.score == "max":
            total += max(dots)
            continue
        exponentials = [math.exp(dot - max(dots)) for dot in dots]
        weights = [one / sum(exponentials) for one in exponentials]
        total += sum(weight * dot for weight, dot in zip(weights, dots, strict=True))
    return total


def slow_search(case: Case, query: NDArray[np.float32]) -> list[tuple[int, float]]:
    """Rank all documents that count: (document, score), best first, ties in document order."""
    scored = [
        (document, slow_score(query, own, case.settings))
        for document, own in enumerate(case.documents)
        if case.counted(document)
    ]
    return sorted(scored, key=lambda one: (-one[1], one[0]))[: case.top]


def precision(case: Case, query: NDArray[np.float32]) -> float:
    """Return what double precision can lose: far below what is left of a sum that cancels out."""
    lengths = float(np.linalg.norm(query.astype(np.float64), axis=1).sum())
    return 1e-13 * case.settings.scale * lengths * case.view.norm


def assert_exact(case: Case, query: NDArray[np.float32], ranking: Ranking) -> None:
    """Assert that a ranking is the brute force's."""
    expected = slow_search(case, query)
    room = precision(case, query)
    assert len(ranking.documents) == len(ranking.scores) == len(expected)
    for document, score, (other, truth) in zip(
        ranking.documents.tolist(), ranking.scores.tolist(), expected, strict=True
    ):
        assert score == pytest.approx(truth, rel=1e-9, abs=room)
        if document != other:
            # The same vectors in another order: only the last bit says which is the better one.
            own = slow_score(query, case.documents[document], case.settings)
            assert own == pytest.approx(truth, rel=1e-13, abs=room)
    # Among all documents' scores to the last bit, these are the best, ties in document order.
    counted = np.array(
        [number for number in range(len(case.documents)) if case.counted(number)], dtype=np.int64
    )
    scores = exact_scores(case.view, query, counted, case.settings)
    order = np.lexsort((counted, -scores))[: case.top]
    assert ranking.documents.tolist() == counted[order].tolist()
    assert ranking.scores.tolist() == scores[order].tolist()


def structure(kind: str, view: VectorView) -> FaissIndex | Int8Scan:
    """Build a structure; over no vectors at all, only a flat one can be."""
    return build(kind if view.vector_count else "flat", view)


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


@given(cases(), st.data())
def test_a_score_does_not_depend_on_the_other_candidates(case: Case, data: st.DataObject) -> None:
    assume(case.documents)
    query = case.queries[0]
    every = np.arange(len(case.documents))
    scores = exact_scores(case.view, query, every, case.settings)
    numbers = st.integers(0, len(every) - 1)
    some = np.array(data.draw(st.lists(numbers, min_size=1, max_size=30)), dtype=np.int64)
    np.testing.assert_array_equal(
        exact_scores(case.view, query, some, case.settings), scores[some], strict=True
    )
    for one in some[:3]:
        alone = exact_scores(case.view, query, np.array([one]), case.settings)
        assert alone.tolist() == [scores[one]]


def test_one_very_long_document_does_not_widen_the_others() -> None:
    documents = [np.ones((1, 2))] * 2000 + [np.ones((200_000, 2))]
    view = view_of(documents, dimension=2)
    query = np.ones((64, 2), dtype=np.float32)
    # Padded alike, this would take 200 GB.
    scores = exact_scores(view, query, np.arange(2000), Representation(scale=1.0))
    np.testing.assert_allclose(scores, 128.0)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dimension", [384, 129, 7])
@pytest.mark.parametrize("asked", [1, 5])
def test_a_score_does_not_depend_on_its_block(score: Score, dimension: int, asked: int) -> None:
    generator = np.random.default_rng(dimension)
    documents = [generator.normal(size=(one % 17, dimension)) for one in range(300)]
    view = view_of(documents, dimension=dimension, borders=[100], dtype="float16")
    query = generator.normal(size=(asked, dimension)).astype(np.float32)
    ours = Representation(score=score, scale=0.3)
    every = np.arange(300)
    scores = exact_scores(view, query, every, ours)
    for part in (every[:1], every[5:6], every[::7], every[::-1], every[123:260]):
        np.testing.assert_array_equal(exact_scores(view, query, part, ours), scores[part])


@given(cases(), st.integers(1, 40))
def test_a_score_does_not_depend_on_padding(case: Case, width: int) -> None:
    dimension = case.queries[0].shape[1]
    wide = view_of(
        [*case.documents, np.ones((width, dimension))],
        dimension=dimension,
        dtype=case.view.segments[0].vectors.dtype.name,
    )
    every = np.arange(len(case.documents))
    for query in case.queries:
        np.testing.assert_array_equal(
            exact_scores(wide, query, every, case.settings),
            exact_scores(case.view, query, every, case.settings),
        )


@given(case=cases())
def test_scores_equal_the_brute_force(case: Case) -> None:
    every = np.arange(len(case.documents))
    for query in case.queries:
        scores = exact_scores(case.view, query, every, case.settings)
        for document, score in zip(case.documents, scores.tolist(), strict=True):
            truth = slow_score(query, document, case.settings) if len(document) else -math.inf
            assert score == pytest.approx(truth, rel=1e-9, abs=precision(case, query))


@given(case=cases())
def test_weights_are_those_of_the_score(case: Case) -> None:
    every = np.arange(len(case.documents))
    for query in case.queries:
        weights = pseudo_query_weights(case.view, query, every, case.settings)
        assert [len(own) for own in weights] == [len(own) for own in case.documents]
        for own in weights:
            assert not own or sum(own) == pytest.approx(1.0)
        if len(query) > 1 or case.settings.score == "max":
            continue
        dots = dots_of(case.view, query, every, case.settings, max(case.view.widest, 1))[:, 0]
        scores = exact_scores(case.view, query, every, case.settings)
        for own, row, score in zip(weights, dots, scores, strict=True):
            assert not own or np.dot(own, row[: len(own)]) == pytest.approx(
                score, abs=precision(case, query)
            )


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


def unit(values: NDArray[Any]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return result.astype(np.float32)


def random_view(generator: np.random.Generator, count: int, k: int, dimension: int) -> VectorView:
    documents = [unit(generator.normal(size=(k, dimension))) for _ in range(count)]
    return view_of(documents, dimension=dimension, borders=[count // 2])


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


def products(kind: str, vectors: NDArray[np.float32], query: NDArray[np.float32]) -> Any:
    """Multiply in single precision in the ways that search and Faiss do."""
    if kind == "matmul":
        return vectors @ query[0]
    if kind == "batched matmul":
        return (vectors @ np.repeat(query, 7, axis=0).T)[:, 3]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    # From 20 queries on, Faiss multiplies matrices.
    batch = np.repeat(query, 30 if kind == "batched faiss" else 1, axis=0)
    dots, positions = index.search(batch, len(vectors))
    return dots[-1][np.argsort(positions[-1])]


def assert_bounded(kind: str, vectors: NDArray[Any], query: NDArray[Any]) -> None:
    single, asked = vectors.astype(np.float32), query.astype(np.float32)
    view = view_of([single], dimension=single.shape[1])
    bound = rounding_error(view, asked, Representation(scale=1.0))
    double = asked[0].astype(np.float64)
    truth = [math.fsum((row * double).tolist()) for row in single.astype(np.float64)]
    errors = np.abs(products(kind, single, asked).astype(np.float64) - truth)
    assert errors.max() <= bound
    assert rounding_error(view, asked, Representation(scale=3.0)) == pytest.approx(3 * bound)


PRODUCTS = ("matmul", "batched matmul", "faiss", "batched faiss")


@given(
    dots=arrays(
        np.float64,
        array_shapes(min_dims=3, max_dims=3, max_side=9),
        elements=st.one_of(st.floats(-1e6, 1e6), st.just(-np.inf)),
    ),
    score=st.sampled_from(["softmax", "max"]),
)
def test_scores_are_those_of_torch(dots: NDArray[np.float64], score: Score) -> None:
    expected = document_score(torch.from_numpy(dots), score).numpy()
    np.testing.assert_allclose(score_of(dots, score), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("kind", PRODUCTS)
@given(
    seed=seeds,
    dimension=st.integers(1, 800),
    spread=st.sampled_from([0.0, 3.0, 12.0]),
    length=st.sampled_from([1e-30, 1e-19, 1e-3, 1.0, 1e3, 1e15]),
    asked=st.sampled_from([1e-20, 1.0, 1e3]),
    cancel=st.booleans(),
)
@settings(max_examples=60)
def test_rounding_bounds_the_error_of_single_precision(
    kind: str, seed: int, dimension: int, spread: float, length: float, asked: float, cancel: bool
) -> None:
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.uniform(-spread, 0, size=(12, dimension))
    values = generator.normal(size=(12, dimension)) * sizes
    query = generator.normal(size=(1, dimension))
    if cancel and dimension > 1:  # each product is undone by another, but for a little
        half = dimension // 2
        values[:, half : 2 * half] = -values[:, :half] * (1 + 1e-6)
        query[:, half : 2 * half] = query[:, :half]
    assert_bounded(kind, length * values, asked * query)


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("large", [1, 8, 16, 64])
@pytest.mark.parametrize("dimension", [128, 768, 4096])
def test_rounding_bounds_what_is_lost_beside_large_numbers(
    kind: str, large: int, dimension: int
) -> None:
    small = (0.98 * 2.0**-24) ** 0.5  # a product just too small to be added to 1
    values = np.full((1, dimension), small)
    values[:, :large] = 1.0
    assert_bounded(kind, values, values)


def test_rounding_is_small_and_not_more_than_needed() -> None:
    generator = np.random.default_rng(0)
    view = random_view(generator, 100, 4, 384)
    query = unit(generator.normal(size=(1, 384)))
    assert 0 < rounding_error(view, query, Representation(scale=1.0)) < 1e-3


@pytest.mark.parametrize("k", [1, 2])
def test_recall_by_vectors_is_the_papers_setting(k: int) -> None:
    generator = np.random.default_rng(k)
    view = random_view(generator, 2000, k, 8)
    number = 1000 * k // 2  # of 2000 * k
    query = unit(generator.normal(size=(1, 8)))
    dots = view.vectors(0, view.vector_count).astype(np.float64) @ query[0].astype(np.float64)
    owners = sorted(set((np.argsort(-dots)[:number] // k).tolist()))
    ranking = search(
        view, build("flat", view), [query], Representation(), 5000, depth=RecallDepth(7, number)
    )[0]
    assert sorted(ranking.documents.tolist()) == owners
    assert ranking.candidates == len(owners)


@given(case=cases(), number=st.integers(1, 100))
def test_recalled_documents_own_the_best_vectors(case: Case, number: int) -> None:
    ours = Case(
        case.documents,
        case.view,
        case.queries,
        case.settings,
        100,
        RecallDepth(1, number),
        case.allowed,
    )
    owner = np.repeat(np.arange(len(case.documents)), [len(own) for own in case.documents])
    permitted = np.array([case.counted(one) for one in owner.tolist()], dtype=bool)
    every = case.view.vectors(0, case.view.vector_count).astype(np.float64)
    rankings = ours.search(structure("flat", case.view))
    for query, ranking in zip(case.queries, rankings, strict=True):
        found = set(ranking.documents.tolist())
        surely, perhaps = set(), set()
        room = 2 * rounding_error(case.view, query, Representation(scale=1.0))
        for vector in query.astype(np.float64):
            if not permitted.any():
                continue
            dots = np.where(permitted, every @ vector, -np.inf)
            last = np.sort(dots[permitted])[::-1][:number][-1]
            surely |= set(owner[permitted & (dots > last + room)].tolist())
            perhaps |= set(owner[permitted & (dots >= last - room)].tolist())
        assert surely <= found <= perhaps
        assert ranking.candidates == len(found)


def test_depth_is_at_least_the_documents_asked_for() -> None:
    generator = np.random.default_rng(0)
    view = random_view(generator, 300, 4, 8)
    query = unit(generator.normal(size=(1, 8)))
    step = build("flat", view)
    for documents, top in ((1, 40), (40, 1), (40, 40), (120, 10)):
        ranking = search(view, step, [query], Representation(), top, depth=RecallDepth(documents))[
            0
        ]
        assert len(ranking.documents) == top
        assert max(documents, top) <= ranking.candidates < 300


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many vectors a structure is asked for, each time."""
    found: list[int] = []
    real = FaissIndex.search

    def counting(step: FaissIndex, queries: Any, count: int, allowed: Any) -> Any:
        found.append(count)
        return real(step, queries, count, allowed)

    monkeypatch.setattr(FaissIndex, "search", counting)
    return found


def test_recall_by_vectors_costs_an_approximate_structure_no_effort(numbers: list[int]) -> None:
    """HNSW looks as far as it is asked for: twice as far as what is used."""
    view = random_view(np.random.default_rng(0), 300, 4, 8)
    query = unit(np.ones((1, 8)))
    depth = RecallDepth(vectors=150)
    ranking = search(view, build("hnsw", view), [query], Representation(), 10, depth=depth)[0]
    assert numbers == [300]
    assert ranking.candidates <= 150


def test_many_vectors_of_few_documents_do_not_starve_the_others() -> None:
    """A document with very many good vectors must not take the places of all other candidates."""
    documents = [np.full((500, 1), 1.0), *[np.array([[0.5 - 0.01 * one]]) for one in range(30)]]
    view = view_of(documents, dimension=1)
    query = np.ones((1, 1), dtype=np.float32)
    ranking = search(
        view, build("flat", view), [query], Representation(), 10, depth=RecallDepth(20)
    )[0]
    assert ranking.documents.tolist() == list(range(10))
    assert ranking.certified


@pytest.mark.parametrize(
    ("alike", "asked", "scored"),
    [(1, [40], 20), (3, [40], 14), (4, [40], 10), (5, [40, 80], 16), (30, [40, 80, 160, 320], 11)],
)
def test_vectors_are_asked_for_until_they_are_of_enough_documents(
    numbers: list[int], alike: int, asked: list[int], scored: int
) -> None:
    """Each document has so many equal vectors; ten documents are wanted, and few more scored."""
    documents = [np.full((alike, 1), 1 - one / 100) for one in range(60)]
    view = view_of(documents, dimension=1)
    query = np.ones((1, 1), dtype=np.float32)
    ranking = search(
        view, build("flat", view), [query], Representation(), 3, depth=RecallDepth(10)
    )[0]
    assert ranking.documents.tolist() == [0, 1, 2]
    assert (numbers, ranking.candidates) == (asked, scored)


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
