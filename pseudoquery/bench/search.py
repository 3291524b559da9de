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
from pseudoquery.method.encoded import DocumentVectors
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
            query_vectors = synthetic_queries(vectors, queries)
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
            # Vectors of the documents serve as queries, as there are no queries to take.
            with store.snapshot() as snapshot:
                rows = np.linspace(0, snapshot.view.vector_count - 1, queries).astype(np.int64)
                query_vectors = [row[None] for row in snapshot.view.rows(rows)]
        views = {kind: _view(store) for kind, store in stores.items()}
        jobs, floors, recalls = _make_jobs(views, stores, query_vectors, settings, top, structures)
        seconds_of = time_jobs(jobs, repeats)
    rows_ = [
        Timing(name, seconds, floors[name], recalls.get(name, ""))
        for name, seconds in seconds_of.items()
    ]
    ours = seconds_of[f"{PROVEN}, {types[0]}"]
    # Faiss takes longer for one query with two threads than with one: both are reported.
    checks = [Check(f"proven exact / {name}", ours / seconds_of[name], 0.5) for name in BESIDE]
    view = views[types[0]]
    data = {
        "documents": len(view.ordinals),
        "vectors": view.vector_count,
        "dimension": query_vectors[0].shape[1],
        "queries_in_a_batch": len(query_vectors),
        "top": top,
        "source": "synthetic" if folder is None else str(folder),
        "repeats": repeats,
    }
    return Report("search", data, rows_, checks)


def _make_jobs(
    views: dict[str, VectorView],
    stores: dict[str, FolderStore],
    queries: Queries,
    settings: Representation,
    top: int,
    structures: Sequence[str],
) -> tuple[dict[str, Callable[[], Any]], dict[str, float], dict[str, str]]:
    """Prepare the jobs to time, with their floors, and with the recall where it is in doubt."""
    jobs: dict[str, Callable[[], Any]] = {}
    floors: dict[str, float] = {}
    notes: dict[str, str] = {}
    first = next(iter(views))
    numbers = views[first].vector_count * queries[0].shape[1]
    batch = len(queries)
    turn = iter(range(10**9))

    def next_query() -> Queries:
        return [queries[next(turn) % batch]]

    flat = build_faiss("flat", views[first]).index
    matrix = np.concatenate(queries)

    def search_in_one_thread() -> Any:
        with faiss_threads(1):
            return flat.search(next_query()[0], top)

    jobs[FAISS] = lambda: flat.search(next_query()[0], top)
    jobs[FAISS_ALONE] = search_in_one_thread
    jobs[f"{FAISS} ×{batch}"] = lambda: flat.search(matrix, top)
    floors[FAISS] = floors[FAISS_ALONE] = floor(4 * numbers)
    floors[f"{FAISS} ×{batch}"] = floor(4 * numbers, 2 * numbers * len(matrix))
    truth: list[Ranking] = []

    def add(name: str, view: VectorView, step: FaissIndex | Int8Scan) -> None:
        def rank(some: Queries) -> list[Ranking]:
            return search(view, step, some, settings, top)

        rankings = rank(queries)
        truth.extend(rankings if not truth else [])
        scored = float(np.mean([ranking.candidates for ranking in rankings]))
        proven = sum(ranking.certified for ranking in rankings) / batch
        recall = _recall(rankings, truth)
        notes[name] = f"{scored:,.0f} scored, {proven:.0%} proven, recall {recall:.3f}"
        compared, work, kind = _count_work(step, view, numbers, len(matrix), scored)
        jobs[name] = lambda: rank(next_query())
        jobs[f"{name} ×{batch}"] = lambda: rank(queries)
        floors[name] = floor(compared)
        floors[f"{name} ×{batch}"] = floor(compared, work, kind)

    for kind, view in views.items():
        built = Structures(stores[kind].folder)
        add(f"{PROVEN}, {kind}", view, built.get("flat8", view))
    for structure in structures:
        add(f"two steps, {structure}", views[first], build_faiss(structure, views[first]))
    return jobs, floors, notes


def _count_work(
    step: FaissIndex | Int8Scan, view: VectorView, numbers: int, queries: int, scored: float
) -> tuple[int, int, str]:
    """Return the bytes that a first step reads, its operations for all queries, and their type."""
    if isinstance(step, Int8Scan):  # a query is two vectors of 8 bits
        return numbers, 4 * numbers * queries, "int8"
    if step.exhaustive:
        return 4 * numbers, 2 * numbers * queries, "float32"
    # At the very least, it reads the documents that it scores.
    compared = int(scored * numbers / len(view.ordinals))
    return compared, 2 * compared * queries, "float32"


def _recall(rankings: Sequence[Ranking], truth: Sequence[Ranking]) -> float:
    shared = sum(
        len(np.intersect1d(ranking.documents, true.documents))
        for ranking, true in zip(rankings, truth, strict=True)
    )
    return shared / max(sum(len(true.documents) for true in truth), 1)


def synthetic_queries(vectors: NDArray[np.float32], count: int) -> Queries:
    """Draw queries that are near some document, each (1, dimension)."""
    generator = np.random.default_rng(1)
    near = vectors[generator.integers(0, len(vectors), count)].mean(axis=1)
    queries = near + 0.1 * generator.standard_normal(near.shape, dtype=np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return [query[None] for query in queries]


def fill_store(folder: Path, vectors: NDArray[np.float32], vector_type: str) -> FolderStore:
    """Put vectors into an index folder, with documents of a word or two."""
    settings = Settings("", "", vectors.shape[2], {}, vector_type=vector_type)
    store = FolderStore.create(folder, settings)
    with store.writer() as writer:
        for start in range(0, len(vectors), ADDED_AT_ONCE):
            batch = list(vectors[start : start + ADDED_AT_ONCE])
            positions = range(start, start + len(batch))
            writer.add(
                [Document(str(at), f"text {at}") for at in positions],
                [DocumentVectors(document) for document in batch],
            )
    return store


def _view(store: FolderStore) -> VectorView:
    with store.snapshot() as snapshot:
        return snapshot.view
