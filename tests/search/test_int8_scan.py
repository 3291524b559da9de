from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.method.representation import Score
from pseudoquery.method.scores import document_score
from pseudoquery.records import Document
from pseudoquery.search import int8_scan as scan
from pseudoquery.search.int8_products import FEW, Packed, multiplies_integers, packs
from pseudoquery.search.int8_scan import Int8Scan, make_scan, pack_scan
from pseudoquery.search.structures import Structures
from pseudoquery.storage.int8_codes import Int8Codes, quantise, split_query
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


@given(
    seed=seeds,
    dimension=st.sampled_from([1, 2, 3, 24, 33]),
    scale=st.floats(0.1, 30),
    score=st.sampled_from(SCORES),
    dtype=st.sampled_from(["float16", "float32", "int8"]),
    products=st.sampled_from([1, 50, 1 << 20]),
)
def test_estimates_are_near_the_scores(
    seed: int, dimension: int, scale: float, score: Score, dtype: str, products: int
) -> None:
    view = random_view(seed, dimension=dimension, dtype=dtype)
    queries = np.random.default_rng(seed).normal(size=(3, dimension)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "PRODUCTS", products)
        made = make_scan(view)
        estimates = made.estimates(queries, scale, score)
    assert estimates.shape == (3, 40)
    assert made.total == view.vector_count
    for row, query in enumerate(queries):
        length = float(np.linalg.norm(query))
        lost = float(split_query(query[None]).lost[0])
        room = 3 * scale * (length * made.errors + (lost + 1e-5 * length) * (view.norm + 1))
        truth = np.array(slow_scores(view, query, scale, score))
        filled = np.diff(view.offsets) > 0
        assert (np.abs(estimates[row, filled] - truth[filled]) <= room[filled]).all()
        assert (estimates[row, ~filled] == -np.inf).all()


needs_layout = pytest.mark.skipif(not packs(DIMENSION), reason="it is not laid out here")


@needs_layout
@given(
    seed=seeds,
    asked=st.integers(1, FEW),
    score=st.sampled_from(SCORES),
    dtype=st.sampled_from(["float16", "float32", "int8"]),
)
def test_what_is_laid_out_gives_the_same_estimates(
    seed: int, asked: int, score: Score, dtype: str
) -> None:
    plain = make_scan(random_view(seed, dtype=dtype))
    laid_out = pack_scan(plain)
    assert all(part.packed for part in laid_out.parts if len(part.codes.values))
    queries = np.random.default_rng(seed).normal(size=(asked, DIMENSION)).astype(np.float32)
    np.testing.assert_array_equal(
        plain.estimates(queries, 3.0, score), laid_out.estimates(queries, 3.0, score)
    )
    pairs = zip(plain.search(queries, 9, None), laid_out.search(queries, 9, None), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_many_codes_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_scan(random_view(0))
    monkeypatch.setattr(scan, "PACKED", made.total * DIMENSION - 1)
    assert pack_scan(made) is made


@pytest.mark.parametrize("dimension", [1, 2, 16, 384, 768])
def test_integers_or_not_the_dots_are_the_same(
    dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_scan(random_view(0, dimension=dimension))
    queries = np.random.default_rng(1).normal(size=(5, dimension)).astype(np.float32)
    here = made.search(queries, made.total, None)
    monkeypatch.setattr(scan, "multiplies_integers", lambda _: False)
    elsewhere = made.search(queries, made.total, None)
    np.testing.assert_array_equal(here.dots, elsewhere.dots)


def test_a_product_that_goes_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.long() @ right.long()).clamp(-30_000, 30_000).int()

    def missing(*_: Any) -> NoReturn:
        raise NotImplementedError

    multiplies_integers.cache_clear()
    for other in (saturating, missing):
        monkeypatch.setattr(torch, "_int_mm", other)
        assert not multiplies_integers(64)
        multiplies_integers.cache_clear()


def test_sums_that_overflow_rule_nothing_out() -> None:
    from pseudoquery.method.representation import Representation
    from pseudoquery.search.two_step import search

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
    vectors = [generator.normal(size=(4, DIMENSION)).astype(np.float32) for _ in numbers]
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


@needs_layout
def test_what_is_asked_again_is_laid_out_once(store: FolderStore) -> None:
    structures = Structures(store.folder)

    def layouts() -> list[Packed | None]:
        found = structures.get("flat8", view_in(store))
        assert isinstance(found, Int8Scan)
        return [part.packed for part in found.parts]

    assert layouts() == [None, None]
    first = layouts()
    assert None not in first
    add(store, range(20, 23))
    assert layouts() == [*first, None]
    second = layouts()
    assert second[:2] == first
    assert second[2] is not None
    assert layouts() == second


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
    assert repair(store, lambda _: ([], 0)) == 0
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
