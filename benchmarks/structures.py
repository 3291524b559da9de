"""Measure what a first step costs: building it, the bytes it takes, and a query.

    OMP_NUM_THREADS=1 python benchmarks/structures.py

Synthetic vectors, which are the hardest case. Processor time is counted, so that it matters little
how busy the machine is; with one thread, the figures are those of one core, which
`benchmarks/capacity.py` takes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from pseudoquery.bench.machine import synthetic_vectors
from pseudoquery.bench.search import fill_store, synthetic_queries
from pseudoquery.method.representation import Representation
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import search

QUERIES = 100
WARM = 5


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, nargs="+", default=[1_250, 5_000])
    arguments.add_argument("--k", type=int, default=16)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--structure", nargs="+", default=["flat8", "hnsw8"])
    options = arguments.parse_args()
    for documents in options.documents:
        vectors = synthetic_vectors(documents, options.k, options.dimension)
        for structure in options.structure:
            with TemporaryDirectory() as temporary:
                row = measure(structure, vectors, Path(temporary) / "index")
            print(json.dumps({"structure": structure, "documents": documents, **row}), flush=True)


def measure(structure: str, vectors: NDArray[np.float32], folder: Path) -> dict[str, float]:
    """Build a structure over the vectors (documents, k, dimension) of an index, and ask it."""
    queries = synthetic_queries(vectors, QUERIES)
    settings = Representation(k=vectors.shape[1], scale=10.0)
    with fill_store(folder, vectors, "float16").snapshot() as snapshot:
        start = time.process_time()
        step = Structures(folder).get(structure, snapshot.view)  # and keep it, as a search does
        built = time.process_time() - start
        taken = []
        for query in [*queries[:WARM], *queries]:  # the first to warm up
            start = time.process_time()
            search(snapshot.view, step, [query], settings, 10)
            taken.append(time.process_time() - start)
        count = snapshot.view.vector_count
    size = sum(path.stat().st_size for path in (folder / "derived").iterdir())
    return {
        "vectors": count,
        "vectors_a_second": round(count / built),
        "bytes_a_vector": round(size / count, 1),
        "ms_a_query": round(1e3 * median(taken[WARM:]), 2),
    }


if __name__ == "__main__":
    main()
