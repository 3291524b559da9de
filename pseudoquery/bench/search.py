"""How long a search takes: proven exact, and in two steps, beside Faiss on the same vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.bench.machine import floor, synthetic_vectors, time_jobs
from pseudoquery.bench.report import Check, Report, Timing
from pseudoquery.index import Index
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search.faiss_index import FaissIndex, build_faiss, faiss_threads
from pseudoquery.search.int8_scan import Int8Scan
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import Ranking, search
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.segments import VECTOR_TYPES
from pseudoquery.storage.store import FolderStore, folder_store
from pseudoquery.storage.vector_view import VectorView

ADDED_AT_ONCE = 4096
FAISS = "Faiss flat (vectors only)"
FAISS_ALONE = f"{FAISS}, one thread"
BESIDE = (FAISS, FAISS_ALONE)
PROVEN = "proven exact"
Queries = list[NDArray[np.float32]]


def bench_search(
    documents: int = 20_000,
    k: int = 8,
    dimension: int = 384,
    queries: int = 64,
    top: int = 10,
    structures: Sequence[str] = ("flat", "hnsw"),
    folder: Path | None = None,
    repeats: int = 21,
) -> Report:
    """Search synthetic vectors, or those of an index, one query and many at a time.

    The floor is one reading of all numbers that are compared or, for many queries, the arithmetic.
    Recall is by the proven answers of the first type of vectors.
    """
    with ExitStack() as stack:
        if folder is None:
            vectors = synthetic_vectors(documents, k, dimension)
            asked = synthetic_queries(vectors, queries)
            types = tuple(VECTOR_TYPES)
            temporary = Path(stack.enter_context(TemporaryDirectory()))
            stores = {kind: fill_store(temporary / kind, vectors, kind) for kind in types}
            settings = Representation(k=k, scale=10.0)
        else:
            index = Index.open(folder)
            types = (index.settings.vector_type,)
            store = folder_store(index.store)
            stores = {types[0]: store}
            settings = index.representation
            # Documents ask for themselves: what a query looks like depends on who asks.
            with store.snapshot() as snapshot:
                rows = np.linspace(0, snapshot.view.vector_count - 1, queries).astype(np.int64)
                asked = [one[None] for one in snapshot.view.rows(rows)]
        views = {kind: _view(store) for kind, store in stores.items()}
        jobs, floors, recalls = _jobs(views, stores, asked, settings, top, structures)
        taken = time_jobs(jobs, repeats)
    rows_ = [
        Timing(name, seconds, floors[name], recalls.get(name, ""))
        for name, seconds in taken.items()
    ]
    ours = taken[f"{PROVEN}, {types[0]}"]
    # Faiss takes longer for one query with two threads than with one: both are told.
    checks = [Check(f"proven exact / {name}", ours / taken[name], 0.5) for name in BESIDE]
    view = views[types[0]]
    data = {
        "documents": len(view.ordinals),
        "vectors": view.vector_count,
        "dimension": asked[0].shape[1],
        "queries_in_a_batch": len(asked),
        "top": top,
        "source": "synthetic" if folder is None else str(folder),
        "repeats": repeats,
    }
    return Report("search", data, rows_, checks)


def _jobs(
    views: dict[str, VectorView],
    stores: dict[str, FolderStore],
    asked: Queries,
    settings: Representation,
    top: int,
    structures: Sequence[str],
) -> tuple[dict[str, Callable[[], Any]], dict[str, float], dict[str, str]]:
    """Prepare what is to be timed, with its floor, and with its recall where that is in doubt."""
    jobs: dict[str, Callable[[], Any]] = {}
    floors: dict[str, float] = {}
    notes: dict[str, str] = {}
    first = next(iter(views))
    numbers = views[first].vector_count * asked[0].shape[1]
    batch = len(asked)
    turn = iter(range(10**9))

    def one() -> Queries:
        return [asked[next(turn) % batch]]

    flat = build_faiss("flat", views[first]).index
    together = np.concatenate(asked)

    def alone() -> Any:
        with faiss_threads(1):
            return flat.search(one()[0], top)

    jobs[FAISS] = lambda: flat.search(one()[0], top)
    jobs[FAISS_ALONE] = alone
    jobs[f"{FAISS} ×{batch}"] = lambda: flat.search(together, top)
    floors[FAISS] = floors[FAISS_ALONE] = floor(4 * numbers)
    floors[f"{FAISS} ×{batch}"] = floor(4 * numbers, 2 * numbers * len(together))
    truth: list[Ranking] = []

    def add(name: str, view: VectorView, step: FaissIndex | Int8Scan) -> None:
        def ask(queries: Queries) -> list[Ranking]:
            return search(view, step, queries, settings, top)

        rankings = ask(asked)
        truth.extend(rankings if not truth else [])
        scored = float(np.mean([ranking.candidates for ranking in rankings]))
        proven = sum(ranking.certified for ranking in rankings) / batch
        recall = _recall(rankings, truth)
        notes[name] = f"{scored:,.0f} scored, {proven:.0%} proven, recall {recall:.3f}"
        if isinstance(step, Int8Scan):  # a query is two vectors of 8 bits
            compared, work, kind = numbers, 4 * numbers * len(together), "int8"
        elif step.exhaustive:
            compared, work, kind = 4 * numbers, 2 * numbers * len(together), "float32"
        else:  # at the very least, it reads the documents that it scores
            compared = int(scored * numbers / len(view.ordinals))
            work, kind = 2 * compared * len(together), "float32"
        jobs[name] = lambda: ask(one())
        jobs[f"{name} ×{batch}"] = lambda: ask(asked)
        floors[name] = floor(compared)
        floors[f"{name} ×{batch}"] = floor(compared, work, kind)

    for kind, view in views.items():
        known = Structures(stores[kind].folder)
        known.get("flat8", view)
        add(f"{PROVEN}, {kind}", view, known.get("flat8", view))  # what is asked again is faster
    for structure in structures:
        add(f"two steps, {structure}", views[first], build_faiss(structure, views[first]))
    return jobs, floors, notes


def _recall(rankings: Sequence[Ranking], truth: Sequence[Ranking]) -> float:
    found = sum(
        len(np.intersect1d(one.documents, other.documents))
        for one, other in zip(rankings, truth, strict=True)
    )
    return found / max(sum(len(other.documents) for other in truth), 1)


def synthetic_queries(vectors: NDArray[np.float32], count: int) -> Queries:
    """Draw queries that are near some document, each (1, dimension)."""
    generator = np.random.default_rng(1)
    near = vectors[generator.integers(0, len(vectors), count)].mean(axis=1)
    asked = near + 0.1 * generator.standard_normal(near.shape, dtype=np.float32)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    return [one[None] for one in asked]


def fill_store(folder: Path, vectors: NDArray[np.float32], vector_type: str) -> FolderStore:
    """Put vectors into an index folder, with documents that say next to nothing."""
    settings = Settings("", "", vectors.shape[2], {}, vector_type=vector_type)
    store = FolderStore.create(folder, settings)
    with store.writer() as writer:
        for start in range(0, len(vectors), ADDED_AT_ONCE):
            own = list(vectors[start : start + ADDED_AT_ONCE])
            numbers = range(start, start + len(own))
            writer.add([Document(str(number), f"text {number}") for number in numbers], own)
    return store


def _view(store: FolderStore) -> VectorView:
    with store.snapshot() as snapshot:
        return snapshot.view
