"""Qdrant Edge: points with one vector, or with several, which it compares by MaxSim.

The settings are Qdrant's own defaults (m 16, ef_construct 100, segments indexed by `optimize`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    HnswIndexConfig,
    MultiVectorComparator,
    MultiVectorConfig,
    Point,
    Query,
    QueryRequest,
    SearchParams,
    UpdateOperation,
)

from benchmarks.peers.measure import Inputs, Vectors, Way, run, size_of

EFFORTS = (16, 32, 64, 128, 256, 512)
ADDED_AT_ONCE = 500


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    for name in inputs.few:
        vectors = inputs.vectors(name)
        start = time.perf_counter()
        shard = build(vectors, folder / name)
        seconds = time.perf_counter() - start
        size = size_of(folder / name)
        indexed = {"m": 16, "ef_construct": 100, "indexed": shard.info().indexed_vectors_count}
        exact = searching(shard, vectors, SearchParams(exact=True))
        yield Way("exact", name, exact, seconds, size)
        for effort in EFFORTS:
            search = searching(shard, vectors, SearchParams(hnsw_ef=effort))
            yield Way("HNSW", name, search, seconds, size, effort=effort, settings=indexed)
        shard.close()


def build(vectors: Vectors, folder: Path) -> Any:
    several = vectors.widest > 1
    form = MultiVectorConfig(MultiVectorComparator.MaxSim) if several else None
    parameters = EdgeVectorParams(
        size=vectors.documents.shape[1], distance=Distance.Dot, multivector_config=form
    )
    folder.mkdir()
    graph = HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000)
    shard = EdgeShard.create(
        str(folder), EdgeConfig(vectors={"vector": parameters}, hnsw_config=graph)
    )
    for start in range(0, vectors.count, ADDED_AT_ONCE):
        points = []
        for number in range(start, min(start + ADDED_AT_ONCE, vectors.count)):
            matrix = vectors.document(number).tolist()
            points.append(Point(number, {"vector": matrix if several else matrix[0]}))
        shard.update(UpdateOperation.upsert_points(points))
    shard.optimize()
    shard.flush()
    return shard


def searching(
    shard: Any, vectors: Vectors, parameters: SearchParams
) -> Callable[[int, int], Sequence[int]]:
    several = vectors.widest > 1

    def search(query: int, top: int) -> Sequence[int]:
        matrix = vectors.query(query).tolist()
        nearest = Query.Nearest(matrix if several else matrix[0], using="vector")
        points = shard.query(QueryRequest(limit=top, query=nearest, params=parameters))
        return [point.id for point in points]

    return search


if __name__ == "__main__":
    run("qdrant_edge", ["qdrant-edge-py"], ways)
