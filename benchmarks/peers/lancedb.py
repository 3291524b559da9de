"""LanceDB: a column of vectors, or of lists of vectors, which it compares by MaxSim.

Its guide: no index below about 100,000 rows; else IVF_HNSW_SQ for the best recall at low latency,
with a partition for each 1,048,576 rows, ef from 1.5 to 10 times the number of results, and a
refine factor where 8 bits are too coarse. Of lists of vectors it takes ten times as many vectors as
documents are wanted, so ef can't be less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfHnswSq

from benchmarks.peers.measure import Inputs, Vectors, Way, run, size_of

EFFORTS = ((15, 30, 60, 100, 200), (100, 150, 200, 400, 800))
"""ef, for one vector and for several."""
ROWS_A_PARTITION = 1_048_576


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    for name in inputs.few:
        vectors = inputs.vectors(name)
        start = time.perf_counter()
        table = lancedb.connect(folder / name).create_table("documents", columns(vectors))
        seconds = time.perf_counter() - start
        yield Way("flat", name, searching(table, vectors), seconds, size_of(folder / name))
        partitions = max(1, len(vectors.documents) // ROWS_A_PARTITION)
        table.create_index(
            "vector", config=IvfHnswSq(distance_type="cosine", num_partitions=partitions)
        )
        seconds = time.perf_counter() - start
        for refine in (None, 2):
            for effort in EFFORTS[vectors.widest > 1]:
                yield Way(
                    "IVF_HNSW_SQ" + (", refined" if refine else ""),
                    name,
                    searching(table, vectors, effort, refine),
                    seconds,
                    size_of(folder / name),
                    effort=effort,
                    settings={"num_partitions": partitions, "refine_factor": refine},
                )


def columns(vectors: Vectors) -> pa.Table:
    numbers = np.ascontiguousarray(vectors.documents, np.float32)
    cells = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), numbers.shape[1])
    if vectors.widest > 1:
        cells = pa.ListArray.from_arrays(pa.array(vectors.offsets, pa.int32()), cells)
    return pa.table({"id": pa.array(np.arange(vectors.count)), "vector": cells})


def searching(
    table: Any, vectors: Vectors, effort: int | None = None, refine: int | None = None
) -> Callable[[int, int], Sequence[int]]:
    fewest = 10 if vectors.widest > 1 else 1.5 * (refine or 1)

    def search(query: int, top: int) -> Sequence[int]:
        request = table.search(vectors.query(query)[0], vector_column_name="vector")
        request = request.distance_type("cosine").select(["id", "_distance"]).limit(top)
        if effort is not None:
            request = request.ef(max(effort, int(fewest * top)))
        if refine is not None:
            request = request.refine_factor(refine)
        ids: Sequence[int] = request.to_arrow()["id"].to_pylist()
        return ids

    return search


if __name__ == "__main__":
    run("lancedb", ["lancedb"], ways)
