from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.storage import vector_view as view_module
from pseudoquery.storage.int8_codes import quantise
from pseudoquery.storage.segment_builder import make_segment
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import VectorView, make_view, ranges

seeds = st.integers(0, 2**32 - 1)


def view_of(
    documents: Sequence[NDArray[Any]],
    *,
    dimension: int,
    borders: Sequence[int] = (),
    dead: Sequence[int] = (),
    dtype: str = "float32",
    epoch: int = 0,
) -> VectorView:
    """Make a view of documents (each its vectors); a segment ends before each border."""
    edges = [0, *sorted(borders), len(documents)]
    segments = []
    for start, stop in pairwise(edges):
        nothing = np.zeros((0, dimension))
        part = documents[start:stop]
        segments.append(
            make_segment(
                np.concatenate([nothing, *part]).astype(np.float32),
                ordinals_of(range(start, stop)),
                np.array([len(vectors) for vectors in part], dtype=np.int64),
                np.dtype(dtype),
            )
        )
    lengths = [np.linalg.norm(segment.decoded().astype(np.float64), axis=1) for segment in segments]
    norm = float(np.concatenate(lengths).max(initial=0.0))
    return make_view(1, epoch, tuple(segments), ordinals_of(dead), norm)


def stored(vectors: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Round vectors to what an index of this type keeps of them."""
    if dtype != "int8":
        return vectors.astype(dtype)
    codes = quantise(vectors.astype(np.float32))
    return codes.values.astype(np.float32) * codes.scales[:, None]


def ordinals_of(documents: Sequence[int]) -> NDArray[np.int64]:
    """Number documents as a store does after some deletions: ascending, with gaps."""
    return np.array([3 * document + 5 for document in documents], dtype=np.int64)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[NDArray[Any]], VectorView]:
    counts = draw(st.lists(st.integers(0, 4), max_size=12))
    dimension = draw(st.integers(1, 5))
    borders = draw(st.lists(st.integers(0, len(counts)), max_size=4))
    dead = draw(st.sets(st.integers(0, max(len(counts) - 1, 0))))
    dtype = draw(st.sampled_from(["float16", "float32", "int8"]))
    generator = np.random.default_rng(draw(seeds))
    documents = [stored(generator.normal(size=(count, dimension)), dtype) for count in counts]
    view = view_of(
        documents, dimension=dimension, borders=borders, dead=sorted(dead), dtype=dtype, epoch=7
    )
    return documents, view


def lists_below(end: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, max(end - 1, 0)), max_size=20 if end else 0)


def joined(documents: Sequence[NDArray[Any]], view: VectorView) -> NDArray[np.float32]:
    dimension = view.segments[0].vectors.shape[1]
    return np.concatenate([np.zeros((0, dimension)), *documents]).astype(np.float32)


def test_ranges_of_the_docstring() -> None:
    assert ranges(np.array([0, 5]), np.array([2, 8])).tolist() == [0, 1, 5, 6, 7]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6))))
def test_ranges_equal_a_loop(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    stops = starts + np.array([length for _, length in pairs], dtype=np.int64)
    expected = [position for start, length in pairs for position in range(start, start + length)]
    found = ranges(starts, stops)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@given(cases())
def test_arrays_describe_the_documents(case: tuple[list[NDArray[Any]], VectorView]) -> None:
    documents, view = case
    assert (view.generation, view.epoch) == (1, 7)
    assert view.ordinals.tolist() == [3 * number + 5 for number in range(len(documents))]
    assert np.diff(view.offsets).tolist() == [len(vectors) for vectors in documents]
    assert view.offsets[0] == 0
    assert view.vector_count == sum(len(vectors) for vectors in documents)
    assert view.widest == max((len(vectors) for vectors in documents), default=0)


@given(cases(), st.data())
def test_consecutive_vectors_equal_the_concatenation(
    case: tuple[list[NDArray[Any]], VectorView], data: st.DataObject
) -> None:
    documents, view = case
    stop = data.draw(st.integers(0, view.vector_count))
    start = data.draw(st.integers(0, stop))
    expected = joined(documents, view)[start:stop]
    found = view.vectors(start, stop)
    assert found.dtype == np.float32
    assert len(found) == len(expected)
    if len(expected):
        np.testing.assert_array_equal(found, expected)


@given(cases(), st.data())
def test_single_vectors_equal_the_concatenation(
    case: tuple[list[NDArray[Any]], VectorView], data: st.DataObject
) -> None:
    documents, view = case
    rows = np.array(data.draw(lists_below(view.vector_count)), dtype=np.int64)
    found = view.rows(rows)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, joined(documents, view)[rows])


@given(cases(), st.data())
def test_vectors_of_documents_in_any_order(
    case: tuple[list[NDArray[Any]], VectorView], data: st.DataObject
) -> None:
    documents, view = case
    chosen = data.draw(lists_below(len(documents)))
    found = view.vectors_of(np.array(chosen, dtype=np.int64))
    np.testing.assert_array_equal(found, joined([documents[position] for position in chosen], view))


@given(st.integers(1, 30), st.sets(st.integers(0, 29)))
def test_deleted_documents_are_not_live(count: int, dead: set[int]) -> None:
    view = view_of([np.ones((1, 2))] * count, dimension=2, borders=[count // 2], dead=sorted(dead))
    assert view.live.tolist() == [number not in dead for number in range(count)]
    assert len(view.ordinals) == count, "deleted documents keep their place"
    assert view.vector_count == count


@given(cases(), st.data())
def test_what_may_be_found_equals_a_loop(
    case: tuple[list[NDArray[Any]], VectorView], data: st.DataObject
) -> None:
    documents, view = case
    count = len(documents)
    allowed = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    counts = [len(vectors) for vectors, chosen in zip(documents, allowed, strict=True) if chosen]
    found = view.chosen(np.array(allowed, dtype=np.bool_))
    assert (found.documents, found.vectors) == (sum(count > 0 for count in counts), sum(counts))
    each = [chosen for vectors, chosen in zip(documents, allowed, strict=True) for _ in vectors]
    assert (found.positions is None) == all(allowed)
    assert found.positions is None or found.positions.tolist() == each


def test_what_may_be_found_unfiltered_is_what_lives() -> None:
    view = view_of([np.ones((2, 1)), np.ones((1, 1)), np.ones((0, 1))], dimension=1, dead=[1])
    assert (view.alive.documents, view.alive.vectors) == (1, 2)
    assert view.alive.positions is not None
    assert view.alive.positions.tolist() == [True, True, False]
    everything = replace(view, live=np.ones(3, dtype=np.bool_)).alive
    assert (everything.documents, everything.vectors, everything.positions) == (2, 3, None)


def test_a_deletion_is_by_number_and_not_by_place() -> None:
    segment = Segment(np.ones((3, 1)), np.array([4, 6, 9]), np.array([1, 1, 1]))
    view = make_view(0, 0, (segment,), np.array([1, 6, 100]), 1.0)
    assert view.live.tolist() == [True, False, True]


def test_a_view_without_segments_is_empty() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    view = make_view(0, 0, (), nothing, 0.0)
    assert (view.vector_count, view.widest) == (0, 0)
    assert view.offsets.tolist() == [0]
    assert len(view.ordinals) == len(view.live) == 0
    assert len(view.vectors(0, 0)) == len(view.rows(nothing)) == len(view.vectors_of(nothing)) == 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_reading_gives_copies(dtype: str) -> None:
    view = view_of([np.ones((2, 3))] * 2, dimension=3, borders=[1], dtype=dtype)
    for read in (view.vectors(0, 2), view.vectors_of(np.array([0])), view.rows(np.array([3]))):
        read[:] = 9
    np.testing.assert_array_equal(view.vectors(0, 4), np.ones((4, 3)))


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40])
def test_few_vectors_are_read_in_pieces_and_many_whole(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(view_module, "TORCH_THREADS_ABOVE", 7)  # two vectors
    monkeypatch.setattr(view_module, "CONVERTED_IN_PIECES", 48)
    vectors = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float16)
    view = view_of([vectors], dimension=3, borders=[], dtype="float16")
    np.testing.assert_array_equal(view.vectors(0, count), vectors.astype(np.float32))
