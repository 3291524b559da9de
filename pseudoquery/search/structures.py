"""The first step of search: query vectors in, the vectors with the largest dot products out.

Each structure is over all vectors of a view, in their order, so that a position in one is a
position in the other: a scan in 8 bits, or a Faiss index. Structures are derived data: they grow as
vectors are appended, and are rebuilt when they are missing or stale. This is the only module that
imports faiss.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.method.gpu import runs_kernels
from pseudoquery.search.gpu_scan import GpuScan, can_grow, make_gpu_scan
from pseudoquery.search.int8_scan import Found, Scan, make_scan, pack_scan, remove_stale
from pseudoquery.storage.segments import move_durably, write_durably
from pseudoquery.storage.vector_view import View

Structure = Literal["auto", "flat", "flat8", "hnsw", "hnsw8", "ivf", "ivf8"]
STRUCTURES: tuple[str, ...] = get_args(Structure)

FLAT8_BELOW = 2_000_000
"""By default, up to this many vectors are scanned, and every answer is proven exact."""
BLOCK = 16_384
"""Vectors read at once while building."""
TRAINING = 65_536
IN_SIGHT = 128
"""Vectors that a search through HNSW keeps in sight at least; with fewer, recall falls."""


@dataclass(slots=True)
class FirstStep:
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
        """How far a vector may be from what is compared, where that is to be known."""
        return 0.0

    @property
    def exhaustive(self) -> bool:
        """Whether it compares with every vector, so that what it leaves out is surely smaller."""
        return self.kind == "flat"

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None
    ) -> Found:
        """Find the `count` largest dot products, among allowed positions, for each query."""
        parameters = self._parameters(count, allowed)
        # Faiss shares out the queries: for one, threads only wait for each other.
        with faiss_threads(1) if len(queries) == 1 else nullcontext():
            dots, positions = self.index.search(queries, count, params=parameters)
        dots[positions < 0] = -np.inf
        return Found(dots, positions)

    def _parameters(self, count: int, allowed: NDArray[np.bool_] | None) -> Any:
        # The selector must outlive the call, and Faiss does not keep the bitmap: the parameters
        # object holds both.
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(_bitmap(allowed))}
        if self.kind.startswith("hnsw"):
            return faiss.SearchParametersHNSW(efSearch=max(count, IN_SIGHT), **chosen)
        if self.kind.startswith("ivf"):
            probes = max(8, self.index.nlist // 8)
            return faiss.SearchParametersIVF(nprobe=probes, **chosen)
        return faiss.SearchParameters(**chosen)


def chosen_kind(structure: str, view: View) -> str:
    """Choose a structure by size, unless one is asked for."""
    if structure not in STRUCTURES:
        raise QueryError(
            f"there is no structure {structure!r}; choose one of {', '.join(STRUCTURES)}."
        )
    if structure != "auto":
        return structure
    return "flat8" if view.vector_count < FLAT8_BELOW else "hnsw8"


def build(kind: str, view: View) -> FirstStep | Scan:
    """Build a structure over all vectors of a view."""
    return make_scan(view) if kind == "flat8" else build_faiss(kind, view)


def build_faiss(kind: str, view: View) -> FirstStep:
    """Build a Faiss structure over all vectors of a view."""
    dimension = view.segments[0].vectors.shape[1]
    clusters = max(1, int(4 * view.vector_count**0.5))
    while clusters > 1 and clusters * 39 > view.vector_count:  # what Faiss wants for training
        clusters //= 2
    recipe = {
        "flat": "Flat",
        "hnsw": "HNSW32",
        "hnsw8": "HNSW32_SQ8",
        "ivf": f"IVF{clusters},Flat",
        "ivf8": f"IVF{clusters},SQ8",
    }[kind]
    index = faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT)
    if kind.startswith("ivf"):
        index.cp.min_points_per_centroid = 1  # Faiss would print a warning for a tiny index
    if not index.is_trained:
        index.train(_sample(view))
    step = FirstStep(kind, view.epoch, index)
    extend(step, view)
    return step


def extend(step: FirstStep, view: View) -> None:
    """Add the vectors that were appended since the structure was built."""
    for start in range(step.index.ntotal, view.vector_count, BLOCK):
        block = view.vectors(start, min(start + BLOCK, view.vector_count))
        step.index.add(block)


class Structures:
    """The structures of one index folder, built when first needed and kept up to date."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "derived"
        self._steps: dict[str, FirstStep] = {}
        self._scan: Scan | None = None
        self._gpu_scan: GpuScan | None = None
        self._mutex = threading.Lock()

    def get(self, structure: str, view: View) -> FirstStep | Scan:
        """Return a structure that covers exactly this view's vectors."""
        kind = chosen_kind(structure, view)
        with self._mutex:
            return self._scanning(view) if kind == "flat8" else self._stepping(kind, view)

    def on_gpu(self, view: View) -> GpuScan | None:
        """Return a scan on the GPU, if there is one that can score this view's documents."""
        if not runs_kernels():
            return None
        with self._mutex:
            known = self._gpu_scan
            if known and known.covers(view):
                return known
            # What is not added to must be gone before all is sent: there may be no room for both.
            self._gpu_scan = known = known if known and can_grow(known, view) else None
            self._gpu_scan = make_gpu_scan(view, known)
            return self._gpu_scan

    def _scanning(self, view: View) -> Scan:
        if self._scan is None or not self._scan.covers(view):
            self._scan = make_scan(view, self._folder, self._scan)
            with suppress(OSError):
                remove_stale(self._folder, view)
        else:
            # What is asked a second time will be asked more often: then it is worth some memory.
            self._scan = pack_scan(self._scan)
        return self._scan

    def _stepping(self, kind: str, view: View) -> FirstStep:
        step = self._steps.get(kind) or self._load(kind)
        if step is None or step.epoch != view.epoch or step.total > view.vector_count:
            step = build_faiss(kind, view)
            self._save(step)
        elif step.total < view.vector_count:
            # Another thread may be searching the old one, with a view that ends where it does.
            step = replace(step, index=faiss.clone_index(step.index))
            extend(step, view)
            self._save(step)
        self._steps[kind] = step
        return step

    def _load(self, kind: str) -> FirstStep | None:
        """Read a saved structure, if there is one; any doubt means that it is built again."""
        path, facts = self._paths(kind)
        try:
            known = json.loads(facts.read_text())
            # Faiss believes what it reads: damage could crash it, or spoil the candidates unseen.
            if _sha256(path) != known["sha256"]:
                return None
            step = FirstStep(kind, known["epoch"], faiss.read_index(str(path)))
            return step if step.total == known["vectors"] else None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None

    def _save(self, step: FirstStep) -> None:
        """Keep what is expensive to build; a flat structure is as quickly made as read."""
        if step.exhaustive:
            return
        path, facts = self._paths(step.kind)
        unfinished = path.with_suffix(".tmp")
        try:
            facts.unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            # Not by way of memory, which may hold the structure once and not twice.
            faiss.write_index(step.index, str(unfinished))
            sha256 = _sha256(unfinished)
            move_durably(unfinished, path)
            known = {"epoch": step.epoch, "vectors": step.total, "sha256": sha256}
            write_durably(facts, json.dumps(known).encode())
        except (OSError, RuntimeError):
            # A reader without write permission, or a full disk, can still search.
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def _paths(self, kind: str) -> tuple[Path, Path]:
        return self._folder / f"{kind}.faiss", self._folder / f"{kind}.json"


@contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Let Faiss use so many threads; for one query, fewer can be faster."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bitmap(allowed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(allowed, bitorder="little")


def _sample(view: View) -> NDArray[np.float32]:
    """Draw vectors evenly from the whole view, for training."""
    rows = np.unique(np.linspace(0, view.vector_count - 1, TRAINING).astype(np.int64))
    return view.rows(rows)
