"""The structures of the first step: query vectors in, the vectors with the largest dots out.

Each structure is over all vectors of a view, in their order, so that a position in one is a
position in the other: a scan in 8 bits, or a Faiss index. Structures are derived data: they grow as
vectors are appended, and are rebuilt when they are missing or stale.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from pseudoquery.errors import QueryError
from pseudoquery.files import move_atomically, sha256_of, write_atomically
from pseudoquery.method.gpu import runs_kernels
from pseudoquery.search.faiss_index import (
    FaissIndex,
    build_faiss,
    clone,
    extend,
    read_faiss,
    write_faiss,
)
from pseudoquery.search.gpu_scan import GpuScan, can_grow, make_gpu_scan
from pseudoquery.search.int8_scan import Int8Scan, make_scan, remove_stale
from pseudoquery.storage.vector_view import VectorView

Structure = Literal["auto", "flat", "flat8", "hnsw", "hnsw8", "ivf", "ivf8"]
STRUCTURES: tuple[str, ...] = get_args(Structure)
FLAT8_BELOW = 2_000_000
"""By default, up to this many vectors are scanned, and every answer is proven exact."""


def choose_structure(structure: str, view: VectorView) -> str:
    """Choose a structure by size, unless one is asked for."""
    if structure not in STRUCTURES:
        raise QueryError(
            f"there is no structure {structure!r}; choose one of {', '.join(STRUCTURES)}."
        )
    if structure != "auto":
        return structure
    return "flat8" if view.vector_count < FLAT8_BELOW else "hnsw8"


class Structures:
    """The structures of one index folder, built when first needed and kept up to date."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "derived"
        self._faiss: dict[str, FaissIndex] = {}
        self._scan: Int8Scan | None = None
        self._gpu_scan: GpuScan | None = None
        self._mutex = threading.Lock()

    def get(self, name: str, view: VectorView) -> FaissIndex | Int8Scan:
        """Return a structure that covers exactly this view's vectors."""
        kind = choose_structure(name, view)
        with self._mutex:
            return self._get_scan(view) if kind == "flat8" else self._get_faiss(kind, view)

    def on_gpu(self, view: VectorView) -> GpuScan | None:
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

    def _get_scan(self, view: VectorView) -> Int8Scan:
        if self._scan is None or not self._scan.covers(view):
            self._scan = make_scan(view, self._folder, self._scan)
            with suppress(OSError):
                remove_stale(self._folder, view)
        return self._scan

    def _get_faiss(self, kind: str, view: VectorView) -> FaissIndex:
        structure = self._faiss.get(kind) or self._load(kind)
        if (
            structure is None
            or structure.epoch != view.epoch
            or structure.total > view.vector_count
        ):
            structure = build_faiss(kind, view)
            self._save(structure)
        elif structure.total < view.vector_count:
            # Another thread may be searching the old one, with a view that ends where it does.
            structure = clone(structure)
            extend(structure, view)
            self._save(structure)
        self._faiss[kind] = structure
        return structure

    def _load(self, kind: str) -> FaissIndex | None:
        """Read a saved structure, if there is one; any doubt means that it is built again."""
        path, facts = self._paths(kind)
        try:
            known = json.loads(facts.read_text())
            # Faiss believes what it reads: damage could crash it, or spoil the candidates unseen.
            if sha256_of(path) != known["sha256"]:
                return None
            structure = read_faiss(path, kind, known["epoch"])
            return structure if structure.total == known["vectors"] else None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None

    def _save(self, structure: FaissIndex) -> None:
        """Keep what is expensive to build; a flat structure is as quickly made as read."""
        if structure.exhaustive:
            return
        path, facts = self._paths(structure.kind)
        unfinished = path.with_suffix(".tmp")
        try:
            facts.unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            # Not by way of memory, which may hold the structure once and not twice.
            write_faiss(structure, unfinished)
            sha256 = sha256_of(unfinished)
            move_atomically(unfinished, path)
            known = {"epoch": structure.epoch, "vectors": structure.total, "sha256": sha256}
            write_atomically(facts, json.dumps(known).encode())
        except (OSError, RuntimeError):
            # A reader without write permission, or a full disk, can still search.
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def _paths(self, kind: str) -> tuple[Path, Path]:
        return self._folder / f"{kind}.faiss", self._folder / f"{kind}.json"
