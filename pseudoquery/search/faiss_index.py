"""Faiss structures over all vectors: flat, HNSW, IVF. The only module that imports Faiss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from pseudoquery.search.int8_scan import NearestVectors
from pseudoquery.storage.vector_view import VectorView

BLOCK = 16_384
"""Vectors read at once while building."""
TRAINING = 65_536
"""Vectors that an IVF structure is trained on, at most."""
IN_SIGHT = 128
"""Vectors that a search through HNSW keeps in sight at least; with fewer, recall falls."""
LEAST_SHARE = 1 / 8
"""For filters that leave less than this share of the vectors, the effort grows no further."""


@dataclass(slots=True)
class FaissIndex:
    """A Faiss structure and what is known about its exactness."""

    kind: str
    epoch: int
    index: Any

    @property
    def total(self) -> int:
        """How many vectors it holds."""
        return int(self.index.ntotal)

    @property
    def error(self) -> float:
        """How far a vector can be from what is compared: a flat structure holds it exactly."""
        return 0.0

    @property
    def exhaustive(self) -> bool:
        """Whether it compares with every vector, so that what it leaves out is surely smaller."""
        return self.kind == "flat"

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None
    ) -> NearestVectors:
        """Find the `count` largest dot products, among allowed positions, for each query."""
        parameters = self._parameters(count, allowed)
        # Faiss shares out the queries: for one, threads only wait for each other.
        with faiss_threads(1) if len(queries) == 1 else nullcontext():
            dots, positions = self.index.search(queries, count, params=parameters)
        dots[positions < 0] = -np.inf
        return NearestVectors(dots, positions)

    def _parameters(self, count: int, allowed: NDArray[np.bool_] | None) -> Any:
        # The selector must outlive the call, and Faiss does not keep the bitmap: the parameters
        # object holds both.
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(pack_bits(allowed))}
        # What a filter leaves out is looked at all the same: with a half, twice as much as without.
        effort = 1.0 if allowed is None else 1 / max(float(allowed.mean()), LEAST_SHARE)
        if self.kind.startswith("hnsw"):
            in_sight = int(effort * max(count, IN_SIGHT))
            return faiss.SearchParametersHNSW(efSearch=in_sight, **chosen)
        if self.kind.startswith("ivf"):
            probes = min(self.index.nlist, int(effort * max(8, self.index.nlist // 8)))
            return faiss.SearchParametersIVF(nprobe=probes, **chosen)
        return faiss.SearchParameters(**chosen)


def build_faiss(kind: str, view: VectorView) -> FaissIndex:
    """Build a Faiss structure over all vectors of a view."""
    dimension = view.segments[0].vectors.shape[1]
    clusters = max(1, int(4 * view.vector_count**0.5))
    while clusters > 1 and clusters * 39 > view.vector_count:  # what Faiss wants for training
        clusters //= 2
    factory_string = {
        "flat": "Flat",
        "hnsw": "HNSW32",
        "hnsw8": "HNSW32_SQ8",
        "ivf": f"IVF{clusters},Flat",
        "ivf8": f"IVF{clusters},SQ8",
    }[kind]
    index = faiss.index_factory(dimension, factory_string, faiss.METRIC_INNER_PRODUCT)
    if kind.startswith("ivf"):
        index.cp.min_points_per_centroid = 1  # Faiss would print a warning for a tiny index
    if not index.is_trained:
        index.train(_sample(view))
    structure = FaissIndex(kind, view.epoch, index)
    extend(structure, view)
    return structure


def extend(structure: FaissIndex, view: VectorView) -> None:
    """Add the vectors that were appended since the structure was built."""
    for start in range(structure.index.ntotal, view.vector_count, BLOCK):
        block = view.vectors(start, min(start + BLOCK, view.vector_count))
        structure.index.add(block)


def clone(structure: FaissIndex) -> FaissIndex:
    """Copy a structure, so that the copy can grow while the original is searched."""
    return replace(structure, index=faiss.clone_index(structure.index))


def write_faiss(structure: FaissIndex, path: Path) -> None:
    """Write a structure straight to a file: memory may hold it once and not twice."""
    faiss.write_index(structure.index, str(path))


def read_faiss(path: Path, kind: str, epoch: int) -> FaissIndex:
    """Read a structure that `write_faiss` wrote; Faiss believes whatever the file says."""
    return FaissIndex(kind, epoch, faiss.read_index(str(path)))


@contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Let Faiss use so many threads; for one query, fewer can be faster."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def pack_bits(allowed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Pack flags into bytes as Faiss reads them."""
    return np.packbits(allowed, bitorder="little")


def _sample(view: VectorView) -> NDArray[np.float32]:
    """Draw vectors evenly from the whole view, for training."""
    rows = np.unique(np.linspace(0, view.vector_count - 1, TRAINING).astype(np.int64))
    return view.rows(rows)
