from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.method.representation import Representation
from pseudoquery.search import faiss_index
from pseudoquery.search import structures as candidates
from pseudoquery.search.error_bounds import rounding_error
from pseudoquery.search.faiss_index import FaissIndex, build_faiss, extend
from pseudoquery.search.int8_scan import Int8Scan
from pseudoquery.search.structures import STRUCTURES, Structures, choose_structure
from pseudoquery.storage.int8_codes import round_queries
from pseudoquery.storage.vector_view import VectorView
from tests.storage.test_vector_view import view_of
from tests.support.structures import build

KINDS = STRUCTURES[1:]
FAISS = tuple(kind for kind in KINDS if kind != "flat8")
Step = FaissIndex | Int8Scan
SAVED = ("hnsw", "hnsw8", "ivf", "ivf8")
DIMENSION = 16
PLAIN = Representation(scale=1.0)


def unit(values: NDArray[Any]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return result.astype(np.float32)


def clustered(seed: int, count: int) -> NDArray[np.float32]:
    """Draw unit vectors around 40 centres, as the vectors of texts lie."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, DIMENSION))
    own = generator.integers(0, len(centres), count)
    return unit(centres[own] + 0.4 * generator.normal(size=(count, DIMENSION)))


def in_view(vectors: NDArray[np.float32], *, epoch: int = 0) -> VectorView:
    """Make documents of four vectors each, and the rest, in three segments."""
    documents = [vectors[start : start + 4] for start in range(0, len(vectors), 4)]
    borders = [len(documents) // 3, len(documents) // 2]
    return view_of(documents, dimension=vectors.shape[1], borders=borders, epoch=epoch)


VECTORS = clustered(0, 2000)
QUERIES = clustered(1, 25)
TRUE_DOTS = QUERIES.astype(np.float64) @ VECTORS.astype(np.float64).T
VIEW = in_view(VECTORS)


@pytest.fixture(scope="module")
def steps() -> dict[str, Step]:
    """Each structure over the same 2,000 vectors; shared, so not to be changed."""
    return {kind: build(kind, VIEW) for kind in KINDS}


def slack(query: NDArray[np.float32]) -> float:
    return rounding_error(VIEW, query[None], PLAIN)


def coarseness(kind: str) -> float:
    """Bound what eight bits can lose: half a step in each dimension, of the range or residual."""
    return 0.5 * 4 / 255 * DIMENSION**0.5 if kind.endswith("8") else 0.0


def test_every_structure_is_tested(steps: dict[str, Step]) -> None:
    assert {"auto", *steps} == set(STRUCTURES)


@pytest.mark.parametrize("kind", STRUCTURES)
def test_dots_are_of_the_returned_positions_and_fall(kind: str) -> None:
    kind = choose_structure(kind, VIEW)
    found = build(kind, VIEW).search(QUERIES, 30, None)
    assert found.dots.shape == found.positions.shape == (len(QUERIES), 30)
    assert found.dots.dtype == np.float32
    for row, query in enumerate(QUERIES):
        own = found.positions[row]
        assert len(set(own.tolist())) == 30
        errors = np.abs(found.dots[row] - TRUE_DOTS[row, own])
        assert errors.max() <= coarseness(kind) + slack(query)
        assert (np.diff(found.dots[row]) <= 0).all()


@pytest.mark.parametrize("kind", STRUCTURES)
def test_recall_of_the_ten_best(kind: str) -> None:
    found = build(choose_structure(kind, VIEW), VIEW).search(QUERIES, 10, None)
    best = np.argsort(-TRUE_DOTS, axis=1)[:, :10]
    recalls = [len(np.intersect1d(*pair)) / 10 for pair in zip(found.positions, best, strict=True)]
    assert np.mean(recalls) >= 0.9


@pytest.mark.parametrize("count", [1, 10, 777, 2000])
def test_flat_finds_exactly_the_best(steps: dict[str, Step], count: int) -> None:
    found = steps["flat"].search(QUERIES, count, None)
    for row, query in enumerate(QUERIES):
        best = np.sort(TRUE_DOTS[row])[::-1][:count]
        np.testing.assert_allclose(TRUE_DOTS[row, found.positions[row]], best, atol=slack(query))


@pytest.mark.parametrize("seed", range(4))
def test_flat_orders_equal_vectors_among_the_best(seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-2, 3, size=(200, 3)).astype(np.float32)  # many ties, no rounding
    query = generator.integers(-2, 3, size=(1, 3)).astype(np.float32)
    found = build("flat", in_view(vectors)).search(query, 60, None)
    dots = vectors @ query[0]
    np.testing.assert_array_equal(found.dots[0], np.sort(dots)[::-1][:60])
    np.testing.assert_array_equal(dots[found.positions[0]], found.dots[0])
    assert len(set(found.positions[0].tolist())) == 60


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 1e3])
def test_the_error_of_flat8_bounds_its_dots(magnitude: float) -> None:
    vectors = VECTORS * np.float32(magnitude)
    view = in_view(vectors)
    step = build("flat8", view)
    assert step.error > 0
    found = step.search(QUERIES, 2000, None)
    truth = magnitude * TRUE_DOTS  # a hair off, by the rounding of `vectors`
    for row, query in enumerate(QUERIES):
        errors = np.abs(found.dots[row] - truth[row, found.positions[row]])
        lost = float(round_queries(query[None]).lost[0]) * (view.norm + step.error)
        room = step.error * float(np.linalg.norm(query)) + lost
        assert errors.max() <= room + 2 * rounding_error(view, query[None], PLAIN)
        assert errors.max() > room / 100, "the bound says something"


@pytest.mark.parametrize("kind", KINDS)
def test_only_scans_are_exhaustive(steps: dict[str, Step], kind: str) -> None:
    assert steps[kind].exhaustive == (kind in ("flat", "flat8"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_only_allowed_positions_are_found(steps: dict[str, Step], kind: str, share: float) -> None:
    allowed = np.random.default_rng(3).random(len(VECTORS)) < share
    found = steps[kind].search(QUERIES, 20, allowed)
    real = found.positions >= 0
    assert allowed[found.positions[real]].all()
    assert real.sum() >= 0.9 * real.size
    if steps[kind].exhaustive:
        assert real.all()
    masked = np.where(allowed, TRUE_DOTS, -np.inf)
    best = np.sort(masked, axis=1)[:, ::-1][:, :20]
    if kind == "flat":
        np.testing.assert_allclose(found.dots, best, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_allowed_nothing_found(steps: dict[str, Step], kind: str) -> None:
    found = steps[kind].search(QUERIES, 5, np.zeros(len(VECTORS), dtype=bool))
    assert (found.positions == -1).all()
    assert (found.dots == -np.inf).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 7, 45])
def test_more_asked_for_than_there_is(kind: str, count: int) -> None:
    step = build(kind, in_view(VECTORS[:count]))
    found = step.search(QUERIES, count + 5, None)
    for row in range(len(QUERIES)):
        assert sorted(found.positions[row, :count].tolist()) == list(range(count))
    assert (found.positions[:, count:] == -1).all()
    assert (found.dots[:, count:] == -np.inf).all()
    assert np.isfinite(found.dots[:, :count]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_small_structures_are_built_in_silence(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    build(kind, in_view(VECTORS[:3]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", FAISS)
def test_growing_covers_what_was_appended(kind: str) -> None:
    step = build_faiss(kind, in_view(VECTORS[:1501]))
    extend(step, VIEW)
    fresh = build(kind, VIEW)
    assert step.total == fresh.total == 2000
    grown, built = step.search(QUERIES, 40, None), fresh.search(QUERIES, 40, None)
    if kind == "flat":
        np.testing.assert_array_equal(grown.dots, built.dots)
        np.testing.assert_array_equal(grown.positions, built.positions)
    own = step.search(VECTORS[1501:], 3, None).positions
    found = (own == np.arange(1501, 2000)[:, None]).any(axis=1)
    assert found.mean() >= 0.95, "each new vector is nearest to itself"


def test_building_reads_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "BLOCK", 7)
    monkeypatch.setattr(faiss_index, "TRAINING", 50)
    for kind in ("flat", "ivf"):
        step = build(kind, in_view(VECTORS[:100]))
        assert step.total == 100
        found = step.search(VECTORS[:100], 5, None).positions
        assert (found == np.arange(100)[:, None]).any(axis=1).mean() >= 0.95


@pytest.mark.parametrize(
    ("count", "kind"), [(1, "flat8"), (19, "flat8"), (20, "hnsw8"), (30, "hnsw8")]
)
def test_auto_chooses_by_size(monkeypatch: pytest.MonkeyPatch, count: int, kind: str) -> None:
    monkeypatch.setattr(candidates, "FLAT8_BELOW", 20)
    view = in_view(VECTORS[:count])
    assert choose_structure("auto", view) == kind
    for asked in KINDS:
        assert choose_structure(asked, view) == asked


def test_small_indexes_are_scanned_by_default() -> None:
    assert choose_structure("auto", VIEW) == "flat8"


def test_an_unknown_structure_names_the_choices(tmp_path: Path) -> None:
    with pytest.raises(QueryError) as caught:
        Structures(tmp_path).get("annoy", VIEW)
    assert str(caught.value) == (
        "there is no structure 'annoy'; choose one of auto, flat, flat8, hnsw, hnsw8, ivf, ivf8."
    )


def check(step: Step, view: VectorView) -> None:
    """Assert that a structure answers for this view: its vectors find themselves."""
    vectors = view.vectors(0, view.vector_count)
    assert step.total == len(vectors)
    found = step.search(vectors, 3, None)
    hit = (found.positions == np.arange(len(vectors))[:, None]).any(axis=1)
    assert hit.mean() >= 0.95


def refuse(*_: Any) -> NoReturn:
    raise AssertionError("it was built again")


@pytest.mark.parametrize(("count", "effort"), [(1, 128), (128, 128), (500, 500)])
@pytest.mark.parametrize("kind", ["hnsw", "hnsw8"])
def test_hnsw_looks_as_far_as_it_is_asked_for(kind: str, count: int, effort: int) -> None:
    step = build(kind, view_of([np.eye(8, dtype=np.float32)], dimension=8))
    assert isinstance(step, FaissIndex)
    assert step._parameters(count, None).efSearch == effort


@pytest.mark.parametrize("kind", KINDS)
def test_a_structure_is_built_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    structures = Structures(tmp_path)
    view = in_view(VECTORS[:400])
    first = structures.get(kind, view)
    monkeypatch.setattr(candidates, "build_faiss", refuse)
    monkeypatch.setattr(candidates, "make_scan", refuse)
    again = structures.get(kind, view)
    assert again is first or kind == "flat8"  # which is laid out when it is asked again
    assert structures.get(kind, replace(view, generation=9)) is again


@pytest.mark.parametrize("kind", FAISS)
def test_a_structure_grows_without_a_new_build(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    structures = Structures(tmp_path)
    structures.get(kind, in_view(VECTORS[:300]))
    monkeypatch.setattr(candidates, "build_faiss", refuse)
    monkeypatch.setattr(candidates, "make_scan", refuse)
    grown = in_view(VECTORS[:400])
    check(structures.get(kind, grown), grown)
    if kind in SAVED:
        check(Structures(tmp_path).get(kind, grown), grown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_under_way_keeps_the_structure_it_got(kind: str, tmp_path: Path) -> None:
    structures = Structures(tmp_path)
    view = in_view(VECTORS[:300])
    step = structures.get(kind, view)
    error = step.error
    before = step.search(QUERIES, 50, None)
    structures.get(kind, in_view(np.concatenate([VECTORS[:300], 3 * QUERIES])))
    after = step.search(QUERIES, 50, None)
    assert (step.total, step.error) == (300, error)
    np.testing.assert_array_equal(before.positions, after.positions)
    np.testing.assert_array_equal(before.dots, after.dots)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_epoch_means_a_new_build(kind: str, tmp_path: Path) -> None:
    structures = Structures(tmp_path)
    structures.get(kind, in_view(VECTORS[:300]))
    other = in_view(VECTORS[500:800], epoch=1)
    for fresh in (structures, Structures(tmp_path)):
        check(fresh.get(kind, other), other)
    fewer = in_view(VECTORS[500:700], epoch=1)  # an older state of the same epoch
    check(structures.get(kind, fewer), fewer)


@pytest.mark.parametrize("kind", SAVED)
def test_a_saved_structure_is_loaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = in_view(VECTORS[:300])
    found = Structures(tmp_path).get(kind, view).search(QUERIES, 10, None)
    names = sorted(path.name for path in (tmp_path / "derived").iterdir())
    assert names == [f"{kind}.faiss", f"{kind}.json"]
    monkeypatch.setattr(candidates, "build_faiss", refuse)
    monkeypatch.setattr(candidates, "make_scan", refuse)
    loaded = Structures(tmp_path).get(kind, view)
    again = loaded.search(QUERIES, 10, None)
    np.testing.assert_array_equal(found.positions, again.positions)
    np.testing.assert_array_equal(found.dots, again.dots)
    grown = in_view(VECTORS[:350])
    check(Structures(tmp_path).get(kind, grown), grown)


def test_a_flat_structure_is_not_saved(tmp_path: Path) -> None:
    Structures(tmp_path).get("flat", in_view(VECTORS[:300]))
    assert list(tmp_path.iterdir()) == []


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "faiss truncated": ("faiss", lambda content: content[: len(content) // 2]),
    "faiss empty": ("faiss", lambda _: b""),
    "faiss zeros": ("faiss", lambda content: bytes(len(content))),
    "faiss garbage": ("faiss", lambda content: b"\xa5" * len(content)),
    "faiss one byte": ("faiss", flipped),
    "faiss longer": ("faiss", lambda content: content + b"x"),
    "json truncated": ("json", lambda content: content[:-3]),
    "json empty": ("json", lambda _: b""),
    "json not text": ("json", lambda _: b"\xff\xfe\x00"),
    "json null": ("json", lambda _: b"null"),
    "json list": ("json", lambda _: b"[1]"),
    "json number": ("json", lambda _: b"7"),
    "json text": ("json", lambda _: b'"hnsw"'),
    "json nothing known": ("json", lambda _: b"{}"),
    "json other count": ("json", lambda content: changed(content, vectors=299)),
    "json other epoch": ("json", lambda content: changed(content, epoch=5)),
}


def changed(content: bytes, **facts: Any) -> bytes:
    return json.dumps({**json.loads(content), **facts}).encode()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all structures that are built from now on."""
    kinds: list[str] = []

    def noted(kind: str, view: VectorView) -> FaissIndex:
        kinds.append(kind)
        return build_faiss(kind, view)

    monkeypatch.setattr(candidates, "build_faiss", noted)
    return kinds


@pytest.mark.parametrize("kind", ["hnsw", "ivf8"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_structure_is_built_again(
    kind: str, damage: str, tmp_path: Path, built: list[str]
) -> None:
    view = in_view(VECTORS[:300])
    Structures(tmp_path).get(kind, view)
    end, spoil = DAMAGES[damage]
    path = tmp_path / "derived" / f"{kind}.{end}"
    path.write_bytes(spoil(path.read_bytes()))
    check(Structures(tmp_path).get(kind, view), view)
    assert built == [kind, kind]
    check(Structures(tmp_path).get(kind, view), view)
    assert built == [kind, kind], "it was saved again"


@pytest.mark.parametrize("name", ["epoch", "vectors", "sha256"])
def test_a_structure_of_which_a_fact_is_missing_is_built_again(
    name: str, tmp_path: Path, built: list[str]
) -> None:
    view = in_view(VECTORS[:300])
    Structures(tmp_path).get("hnsw", view)
    path = tmp_path / "derived" / "hnsw.json"
    facts = json.loads(path.read_bytes())
    del facts[name]
    path.write_text(json.dumps(facts))
    check(Structures(tmp_path).get("hnsw", view), view)
    assert built == ["hnsw", "hnsw"]
    assert name in json.loads(path.read_bytes())


def test_a_missing_file_is_built_again(tmp_path: Path) -> None:
    view = in_view(VECTORS[:300])
    for name in ("hnsw.faiss", "hnsw.json"):
        check(Structures(tmp_path).get("hnsw", view), view)
        (tmp_path / "derived" / name).unlink()
        check(Structures(tmp_path).get("hnsw", view), view)
        assert (tmp_path / "derived" / name).exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_can_not_be_written_to_can_be_searched(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise OSError(28, "no space left")

    monkeypatch.setattr(candidates, "write_atomically", full)
    structures = Structures(tmp_path)
    for count in (300, 320):
        view = in_view(VECTORS[:count])
        check(structures.get(kind, view), view)


def test_searching_does_not_depend_on_threads(steps: dict[str, Step]) -> None:
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        alone = {kind: step.search(QUERIES, 20, None) for kind, step in steps.items()}
    finally:
        faiss.omp_set_num_threads(threads)
    for kind, step in steps.items():
        np.testing.assert_array_equal(step.search(QUERIES, 20, None).positions, alone[kind][1])


@pytest.mark.parametrize("queries", [1, 3])
def test_one_query_is_not_shared_out(queries: int) -> None:
    before = faiss.omp_get_max_threads()
    used = []

    class Watched:
        def search(self, *_: Any, **__: Any) -> NoReturn:
            used.append(faiss.omp_get_max_threads())
            raise RuntimeError

    step = FaissIndex("flat", 0, Watched())
    faiss.omp_set_num_threads(2)
    try:
        with pytest.raises(RuntimeError):
            step.search(VECTORS[:queries], 5, None)
        assert used == [1 if queries == 1 else 2]
        assert faiss.omp_get_max_threads() == 2, "as it was"
    finally:
        faiss.omp_set_num_threads(before)
