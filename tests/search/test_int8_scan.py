from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.representation import Representation, Score
from pseudoquery.method.scores import document_score
from pseudoquery.native.choice import NUMPY, available_kernels
from pseudoquery.records import Document
from pseudoquery.search import int8_scan as scan
from pseudoquery.search import scan_threads
from pseudoquery.search.error_bounds import int8_dots_error, score_error_per_dot
from pseudoquery.search.int8_scan import make_scan
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import search
from pseudoquery.storage.int8_codes import Int8Codes, quantise
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.vector_view import VectorView
from pseudoquery.storage.verify import problems, repair
from tests.storage.test_vector_view import view_of

SCORES: tuple[Score, ...] = ("softmax", "max")
DIMENSION = 24
seeds = st.integers(0, 2**32 - 1)


def random_view(seed: int, *, dimension: int = DIMENSION, dtype: str = "float16") -> VectorView:
    """Make documents of no to nine vectors, in segments that may be empty."""
    generator = np.random.default_rng(seed)
    documents = [
        generator.normal(size=(generator.integers(0, 10), dimension)) / dimension**0.5
        for _ in range(40)
    ]
    return view_of(documents, dimension=dimension, borders=[0, 11, 11, 30], dtype=dtype)


def slow_scores(
    view: VectorView, query: NDArray[np.float32], scale: float, score: Score
) -> list[float]:
    """Score each document alone, in double precision, by its real vectors."""
    vectors = view.vectors(0, view.vector_count).astype(np.float64)
    scores = []
    for start, stop in zip(view.offsets[:-1], view.offsets[1:], strict=True):
        dots = scale * vectors[start:stop] @ query.astype(np.float64)
        own = torch.from_numpy(np.append(dots, -np.inf))[None]
        scores.append(float(document_score(own, score)))
    return scores


@pytest.fixture(params=available_kernels(), autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test is with every kernel."""
    monkeypatch.setenv("PSEUDOQUERY_KERNEL", request.param)
    return str(request.param)


@given(
    seed=seeds,
    dimension=st.sampled_from([1, 2, 3, 24, 33, 64, 100]),
    scale=st.sampled_from([0.1, 1.0, 10.0, 100.0, 1e4]),
    length=st.sampled_from([1e-35, 1e-20, 1.0, 1e10]),
    score=st.sampled_from(SCORES),
    dtype=st.sampled_from(["float16", "float32", "int8"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_estimates_are_as_near_the_scores_as_they_promise(
    seed: int, dimension: int, scale: float, length: float, score: Score, dtype: str
) -> None:
    view = random_view(seed, dimension=dimension, dtype=dtype)
    drawn = np.random.default_rng(seed).normal(size=(3, dimension))
    queries = (drawn * length).astype(np.float32)
    made = make_scan(view)
    estimates = made.estimates(queries, scale, score)
    assert estimates.shape == (3, 40)
    assert made.total == view.vector_count
    filled = np.diff(view.offsets) > 0
    representation = Representation(scale=scale, score=score)
    for row, query in enumerate(queries):
        errors = int8_dots_error(view, query[None], made.errors, representation)
        room = score_error_per_dot(view.widest, representation) * errors
        truth = np.array(slow_scores(view, query, scale, score))
        assert (np.abs(estimates[row, filled] - truth[filled]) <= room[filled]).all()
        assert (estimates[row, ~filled] == -np.inf).all()


@given(seed=seeds, score=st.sampled_from(SCORES), share=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_filter_leaves_out_documents_and_changes_nothing_else(
    seed: int, score: Score, share: float
) -> None:
    view = random_view(seed)
    queries = np.random.default_rng(seed).normal(size=(3, DIMENSION)).astype(np.float32)
    allowed = np.random.default_rng(seed).random(40) < share
    made = make_scan(view)
    everything = made.estimates(queries, 3.0, score)
    some = made.estimates(queries, 3.0, score, allowed)
    assert (some[:, ~allowed] == -np.inf).all()
    np.testing.assert_allclose(some[:, allowed], everything[:, allowed], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_make_no_difference(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = np.random.default_rng(0).normal(size=(3, DIMENSION)).astype(np.float32)
    made = make_scan(random_view(0))
    monkeypatch.setattr(scan_threads, "thread_count", lambda: 1)
    monkeypatch.setattr(scan, "thread_count", lambda: 1)
    alone = made.estimates(queries, 3.0, "softmax")
    monkeypatch.setattr(scan_threads, "thread_count", lambda: threads)
    monkeypatch.setattr(scan, "thread_count", lambda: threads)
    monkeypatch.setattr(scan, "SHARE", 100)
    shared = made.estimates(queries, 3.0, "softmax")
    # What is multiplied together changes the last digits in numpy.
    np.testing.assert_allclose(alone, shared, rtol=1e-5, atol=1e-5)


def test_threads_of_a_server_may_scan_at_once() -> None:
    made = make_scan(random_view(0))
    queries = np.random.default_rng(0).normal(size=(40, 1, DIMENSION)).astype(np.float32)
    expected = [made.estimates(query, 3.0, "softmax") for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = threads.map(lambda query: made.estimates(query, 3.0, "softmax"), queries)
        for alone, beside in zip(expected, together, strict=True):
            np.testing.assert_array_equal(alone, beside)


@pytest.mark.parametrize("dimension", [1, 2, 16, 384, 768])
def test_all_kernels_find_the_same_dots(
    dimension: int, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    made = make_scan(random_view(0, dimension=dimension))
    queries = np.random.default_rng(1).normal(size=(5, dimension)).astype(np.float32)
    here = made.search(queries, made.total, None)
    monkeypatch.setenv("PSEUDOQUERY_KERNEL", NUMPY)
    elsewhere = made.search(queries, made.total, None)
    if kernel == NUMPY:
        np.testing.assert_array_equal(here.dots, elsewhere.dots)
    np.testing.assert_allclose(here.dots, elsewhere.dots, rtol=1e-4, atol=1e-5)


def test_sums_that_overflow_rule_nothing_out() -> None:
    huge = [np.full((1, 4), sign * 1e30, np.float32) for sign in (1.0, -1.0, 0.5)]
    view = view_of(huge, dimension=4)
    query = np.full((1, 4), 1e30, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        ranking = search(view, make_scan(view), [query], Representation(scale=1.0), 2)[0]
    assert ranking.documents.tolist() == [0, 2]
    assert ranking.certified


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """A folder with twenty documents in two segments."""
    made = FolderStore.create(tmp_path / "index", Settings("", "", DIMENSION, {}))
    for start in (0, 10):
        add(made, range(start, start + 10))
    return made


def add(store: FolderStore, numbers: range) -> None:
    generator = np.random.default_rng(numbers.start)
    vectors = [
        DocumentVectors(generator.normal(size=(4, DIMENSION)).astype(np.float32)) for _ in numbers
    ]
    with store.writer() as writer:
        writer.add([Document(f"id {number}", "text") for number in numbers], vectors)


def view_in(store: FolderStore) -> VectorView:
    with store.snapshot() as snapshot:
        return snapshot.view


def files(store: FolderStore) -> set[str]:
    return {path.name for path in (store.folder / "derived").glob("*.codes.safetensors")}


def refuse(*_: Any) -> NoReturn:
    raise AssertionError("codes were made again")


def test_codes_are_kept_and_mapped(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_in(store)
    made = Structures(store.folder).get("flat8", view)
    assert len(files(store)) == 2
    monkeypatch.setattr(scan, "quantise", refuse)
    reopened = FolderStore.open(store.folder)
    mapped = Structures(store.folder).get("flat8", view_in(reopened))
    queries = np.random.default_rng(5).normal(size=(3, DIMENSION)).astype(np.float32)
    pairs = zip(made.search(queries, 9, None), mapped.search(queries, 9, None), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_only_new_segments_are_quantised(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    structures = Structures(store.folder)
    structures.get("flat8", view_in(store))
    quantised: list[int] = []

    def noted(vectors: NDArray[Any]) -> Int8Codes:
        quantised.append(len(vectors))
        return quantise(vectors)

    monkeypatch.setattr(scan, "quantise", noted)
    add(store, range(20, 23))
    assert structures.get("flat8", view_in(store)).total == 92
    assert quantised == [12]


def test_codes_of_segments_that_are_no_more_are_removed(store: FolderStore) -> None:
    structures = Structures(store.folder)
    structures.get("flat8", view_in(store))
    before = files(store)
    with store.writer() as writer:
        writer.delete(["id 3"])
        writer.compact()
    assert structures.get("flat8", view_in(store)).total == 76
    assert len(files(store)) == 1
    assert not before & files(store)


def test_wrong_codes_are_found_and_removed(store: FolderStore) -> None:
    Structures(store.folder).get("flat8", view_in(store))
    assert problems(store) == []
    path = min((store.folder / "derived").iterdir())
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    assert problems(store) == [f"derived/{path.name}: it does not hold the codes of its segment"]
    assert repair(store, lambda _: []) == 0
    assert not path.exists()
    assert problems(store) == []


def test_vectors_in_8_bits_need_no_codes(tmp_path: Path) -> None:
    made = FolderStore.create(
        tmp_path / "index", Settings("", "", DIMENSION, {}, vector_type="int8")
    )
    add(made, range(5))
    kept = Structures(made.folder).get("flat8", view_in(made))
    assert kept.error == 0.0
    assert not files(made)


def test_a_folder_that_can_not_be_written_to_can_be_scanned(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise OSError(28, "no space left")

    monkeypatch.setattr(scan, "save_codes", full)
    assert Structures(store.folder).get("flat8", view_in(store)).total == 80
    assert not files(store)


def test_segments_without_a_file_are_scanned(tmp_path: Path) -> None:
    segment = Segment(np.ones((2, 3), np.float16), np.array([1]), np.array([2]))
    assert segment.name == ""
    view = random_view(0)
    assert Structures(tmp_path).get("flat8", view).total == view.vector_count
    assert list(tmp_path.iterdir()) == []
