"""Measure proven exact search beside Faiss flat, by each kernel, with one thread and with two.

    OMP_NUM_THREADS=1 python benchmarks/scan.py --documents 10000 100000 1000000

Synthetic vectors, which are the hardest case. What is compared takes turns. Processor time is what
counts where others are at work; two threads are compared by the time that has passed. Faiss needs 4
bytes a number: if that is more than the memory holds, `--faiss-share` gives it a part of the
documents and multiplies its time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.bench.machine import describe_machine, synthetic_vectors
from pseudoquery.bench.search import synthetic_queries
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.representation import Representation
from pseudoquery.native.choice import VARIABLE, available_kernels
from pseudoquery.records import Document
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import search
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore

ADDED_AT_ONCE = 4096
QUERIES, TOP, THREADS = 64, 10, (1, 2)
FAISS = "Faiss flat, one thread"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    arguments.add_argument("--k", type=int, default=8)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--vector-type", default="float16")
    arguments.add_argument("--kernel", nargs="+", default=available_kernels())
    arguments.add_argument("--faiss-share", type=float, default=1.0)
    arguments.add_argument("--repeats", type=int, default=15)
    options = arguments.parse_args()
    print(json.dumps(describe_machine()), flush=True)
    faiss.omp_set_num_threads(1)
    for documents in options.documents:
        with TemporaryDirectory() as temporary:
            for row in measure(Path(temporary) / "index", documents, options):
                print(json.dumps({"documents": documents, **row}), flush=True)


def measure(folder: Path, documents: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fill an index and Faiss with the same vectors, and ask both."""
    flat = faiss.IndexFlatIP(options.dimension)
    in_faiss = int(options.faiss_share * documents)
    store = FolderStore.create(
        folder, Settings("", "", options.dimension, {}, vector_type=options.vector_type)
    )
    with store.writer() as writer:
        for start in range(0, documents, ADDED_AT_ONCE):
            count = min(ADDED_AT_ONCE, documents - start)
            vectors = synthetic_vectors(count, options.k, options.dimension, seed=start)
            flat.add(vectors[: max(0, in_faiss - start)].reshape(-1, options.dimension))
            names = (str(at) for at in range(start, start + count))
            writer.add(
                [Document(name, name) for name in names], list(map(DocumentVectors, vectors))
            )
    queries = synthetic_queries(vectors, QUERIES)
    settings = Representation(k=options.k, scale=10.0)
    with store.snapshot() as snapshot:
        scan = Structures(folder).get("flat8", snapshot.view)

        def search_by(kernel: str, threads: int) -> Callable[[NDArray[np.float32]], Any]:
            def run(query: NDArray[np.float32]) -> Any:
                os.environ[VARIABLE] = kernel
                torch.set_num_threads(threads)
                return search(snapshot.view, scan, [query], settings, TOP)

            return run

        jobs: dict[tuple[str, int], Callable[[NDArray[np.float32]], Any]] = {
            (FAISS, 1): lambda query: flat.search(query, TOP)
        }
        for kernel in options.kernel:
            jobs.update({(kernel, threads): search_by(kernel, threads) for threads in THREADS})
        times = time_in_turns(jobs, queries, options.repeats)
    theirs = tuple(taken * documents / in_faiss for taken in times[FAISS, 1])
    return [
        {
            "job": name,
            "threads": threads,
            "processor_ms": round(1e3 * own[0], 2),
            "passed_ms": round(1e3 * own[1], 2),
            "processor_of_faiss": round(own[0] / theirs[0], 3),
            "passed_of_faiss": round(own[1] / theirs[1], 3),
            "times_one_thread": round(times[name, 1][1] / own[1], 2),
        }
        for (name, threads), own in {**times, (FAISS, 1): theirs}.items()
    ]


def time_in_turns(
    jobs: dict[tuple[str, int], Callable[[NDArray[np.float32]], Any]],
    queries: list[NDArray[np.float32]],
    repeats: int,
) -> dict[tuple[str, int], tuple[float, float]]:
    """Run the jobs in turn; return the median of processor time and of time passed of each."""
    times: dict[tuple[str, int], list[tuple[float, float]]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            processor, passed = time.process_time(), time.perf_counter()
            job(queries[turn % len(queries)])
            times[name].append((time.process_time() - processor, time.perf_counter() - passed))
    return {
        name: (median(one for one, _ in taken[1:]), median(two for _, two in taken[1:]))
        for name, taken in times.items()
    }


if __name__ == "__main__":
    main()
