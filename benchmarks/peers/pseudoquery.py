"""pseudoquery itself: proven exact, in two steps, and with BM25.

A search is what a user's is, but for the encoding of the question: it opens a snapshot of the
index, so that it sees what was committed last. BM25's part reads the question's text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.measure import Inputs, Vectors, Way, run, size_of
from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search.dense import DenseRanker
from pseudoquery.search.rank import rank_dense, rank_hybrid
from pseudoquery.search.request import RankRequest
from pseudoquery.search.settings import Mode, SearchSettings
from pseudoquery.search.structures import Structures
from pseudoquery.storage.int8_codes import ENDING
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore

EFFORTS = (10, 20, 50, 100, 200, 400)
"""Documents that the first step recalls; 200 is the default."""
ADDED_AT_ONCE = 512
FILES = {"flat8": f"*{ENDING}", "hnsw": "hnsw.faiss", "hnsw8": "hnsw8.faiss"}
"""What is derived from the vectors for each structure."""


@dataclass(frozen=True, slots=True)
class Made:
    """An index of given vectors."""

    store: FolderStore
    structures: Structures
    vectors: Vectors
    representation: Representation
    questions: list[str]
    seconds: float


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    for name in inputs.facts["representations"]:
        if name in ("one", "tokens"):
            continue
        for kind in ("float16", "int8"):
            made = make(inputs, name, kind, folder / f"{name}-{kind}")
            settings = SearchSettings(structure="flat8")
            yield way(made, f"proven exact, {kind}", name, settings, proven=True)
            if kind == "int8":
                continue
            for structure in ("hnsw", "hnsw8"):
                for effort in EFFORTS:
                    settings = SearchSettings(structure=structure, recall=effort)
                    yield way(made, f"two steps, {structure}", name, settings, effort=effort)
            if made.questions:
                whole = size_of(made.store.folder)
                settings = SearchSettings(structure="flat8")
                yield way(made, "with BM25", name, settings, rank_hybrid, score="", bytes=whole)


def make(inputs: Inputs, name: str, kind: str, folder: Path) -> Made:
    vectors = inputs.vectors(name)
    told = inputs.facts["texts"]
    texts = (
        inputs.texts("documents")
        if told
        else [f"text {document}" for document in range(vectors.count)]
    )
    questions = inputs.texts("queries") if told else []
    start = time.perf_counter()
    settings = Settings("", "", vectors.documents.shape[1], {}, vector_type=kind)
    store = FolderStore.create(folder, settings)
    with store.writer() as writer:
        for first in range(0, vectors.count, ADDED_AT_ONCE):
            numbers = range(first, min(first + ADDED_AT_ONCE, vectors.count))
            documents = [Document(str(number), texts[number]) for number in numbers]
            writer.add(
                documents,
                [DocumentVectors(np.array(vectors.document(number))) for number in numbers],
            )
    seconds = time.perf_counter() - start
    representation = Representation(**inputs.facts["representations"][name]["settings"])
    return Made(store, Structures(folder), vectors, representation, questions, seconds)


def way(
    made: Made,
    name: str,
    representation: str,
    settings: SearchSettings,
    rank: Any = rank_dense,
    **more: Any,
) -> Way:
    search = searching(made, settings, rank)
    start = time.perf_counter()
    search(0, 1)  # it makes the structure
    seconds = made.seconds + time.perf_counter() - start
    folder = made.store.folder
    derived = (folder / "derived").glob(FILES[settings.structure])
    facts = {
        "bytes": size_of(folder / "segments") + sum(path.stat().st_size for path in derived),
        "score": made.representation.score,
        "settings": {"structure": settings.structure},
        **more,
    }
    return Way(name, representation, search, seconds, **facts)


def searching(
    made: Made, settings: SearchSettings, rank: Any
) -> Callable[[int, int], Sequence[int]]:
    def search(query: int, top: int) -> Sequence[int]:
        text = made.questions[query] if made.questions else ""
        with made.store.snapshot() as snapshot:
            mode: Mode = "hybrid" if rank is rank_hybrid else "dense"
            request = RankRequest([text], top, None, False, mode, settings)
            vectors = made.vectors.query(query)
            ranker = DenseRanker(snapshot, request, made.structures, made.representation, "none")
            (ranking,) = rank(ranker, [QuestionVectors(vectors, vectors[:0])])
            positions: list[int] = np.searchsorted(
                snapshot.view.ordinals, ranking.ordinals
            ).tolist()
        return positions

    return search


if __name__ == "__main__":
    run("pseudoquery", ["pseudoquery", "faiss-cpu", "torch"], ways)
