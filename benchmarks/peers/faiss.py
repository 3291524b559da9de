"""Faiss: every vector compared (flat), and HNSW, as its guidelines choose for a small corpus.

It ranks vectors. Documents are made of them afterwards: the best `top` times k vectors are of `top`
documents at least. "Vectors alone" leaves that out; it is the yardstick of the other peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.peers.measure import Inputs, Vectors, Way, distinct, run

EFFORTS = (16, 32, 64, 128, 256, 512)


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    cores = faiss.omp_get_max_threads()
    for name in inputs.few:
        vectors = inputs.vectors(name)
        flat, seconds, size = build("Flat", vectors, folder)
        for threads in dict.fromkeys((cores, 1)):
            faiss.omp_set_num_threads(threads)
            suffix = "" if threads == cores else ", 1 thread"
            if vectors.widest > 1:
                alone = documents_of(flat, vectors, 1)
                yield Way(f"flat, vectors alone{suffix}", name, alone, seconds, size, score="")
            search = documents_of(flat, vectors, vectors.widest)
            yield Way(f"flat{suffix}", name, search, seconds, size)
        faiss.omp_set_num_threads(cores)
        graph, seconds, size = build("HNSW32", vectors, folder)
        for effort in EFFORTS:
            search = documents_of(graph, vectors, vectors.widest, effort)
            settings = {"M": 32, "efConstruction": graph.hnsw.efConstruction}
            yield Way("HNSW", name, search, seconds, size, effort=effort, settings=settings)


def build(recipe: str, vectors: Vectors, folder: Path) -> tuple[Any, float, int]:
    start = time.perf_counter()
    dimension = vectors.documents.shape[1]
    index = faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT)
    index.add(np.ascontiguousarray(vectors.documents, np.float32))
    seconds = time.perf_counter() - start
    path = folder / "index.faiss"
    faiss.write_index(index, str(path))
    return index, seconds, path.stat().st_size


def documents_of(
    index: Any, vectors: Vectors, width: int, effort: int | None = None
) -> Callable[[int, int], Sequence[int]]:
    owners = vectors.owners()
    options = {} if effort is None else {"params": faiss.SearchParametersHNSW(efSearch=effort)}

    def search(query: int, top: int) -> Sequence[int]:
        _, positions = index.search(vectors.query(query), top * width, **options)
        return distinct(owners[positions[0][positions[0] >= 0]].tolist(), top)

    return search


if __name__ == "__main__":
    run("faiss", ["faiss-cpu"], ways)
