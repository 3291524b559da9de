"""The first step of search: query vectors in, the vectors with the largest dot products out.

Each structure is a Faiss index over all vectors of a view, in their order, so that a position in
one is a position in the other. Structures are derived data: they grow as vectors are appended, and
are rebuilt when they are missing or stale. This is the only module that imports faiss.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.segments import write_durably
from pseudoquery.view import View

Structure = Literal["auto", "flat", "flat8", "hnsw", "hnsw8", "ivf", "ivf8"]
STRUCTURES: tuple[str, ...] = get_args(Structure)

FLAT_BELOW = 200_000
FLAT8_BELOW = 2_000_000
"""By default, up to this many vectors are scanned: certified exact, in 4 or 1 bytes a number."""
BLOCK = 16_384
"""Vectors read at once while building."""
TRAINING = 65_536


class Found(NamedTuple):
    """The outcome of a first step for a batch of query vectors."""

    dots: NDArray[np.float32]
    """(queries, count): falling along each row; minus infinity where nothing more was found"""
    positions: NDArray[np.int64]
    """(queries, count): -1 where nothing more was found"""


@dataclass(slots=True)
class FirstStep:
    """A Faiss structure and what is known about its exactness."""

    kind: str
    epoch: int
    index: Any
    error: float = 0.0
    """The largest distance between a vector and its quantised form."""

    @property
    def exhaustive(self) -> bool:
        """Whether it compares with every vector, so that what it leaves out is surely smaller."""
        return self.kind in ("flat", "flat8")

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None
    ) -> Found:
        """Find the `count` largest dot products, among allowed positions, for each query."""
        parameters = self._parameters(count, allowed)
        dots, positions = self.index.search(queries, count, params=parameters)
        return Found(np.where(positions < 0, -np.inf, dots).astype(np.float32), positions)

    def _parameters(self, count: int, allowed: NDArray[np.bool_] | None) -> Any:
        # The selector must outlive the call, and Faiss does not keep the bitmap: the parameters
        # object holds both.
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(_bitmap(allowed))}
        if self.kind.startswith("hnsw"):
            return faiss.SearchParametersHNSW(efSearch=max(2 * count, 128), **chosen)
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
    if view.vector_count < FLAT_BELOW:
        return "flat"
    return "flat8" if view.vector_count < FLAT8_BELOW else "hnsw8"


def build(kind: str, view: View) -> FirstStep:
    """Build a structure over all vectors of a view."""
    dimension = view.segments[0].vectors.shape[1]
    clusters = max(1, int(4 * view.vector_count**0.5))
    while clusters > 1 and clusters * 39 > view.vector_count:  # what Faiss wants for training
        clusters //= 2
    recipe = {
        "flat": "Flat",
        "flat8": "SQ8",
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
        if step.kind == "flat8":
            decoded = step.index.sa_decode(step.index.sa_encode(block))
            distances = np.linalg.norm(block.astype(np.float64) - decoded, axis=1)
            step.error = max(step.error, float(distances.max(initial=0.0)))
        step.index.add(block)


class Structures:
    """The structures of one index folder, built when first needed and kept up to date."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "derived"
        self._steps: dict[str, FirstStep] = {}
        self._mutex = threading.Lock()

    def get(self, structure: str, view: View) -> FirstStep:
        """Return a structure that covers exactly this view's vectors."""
        kind = chosen_kind(structure, view)
        with self._mutex:
            step = self._steps.get(kind) or self._load(kind)
            if step is None or step.epoch != view.epoch or step.index.ntotal > view.vector_count:
                step = build(kind, view)
                self._save(step)
            elif step.index.ntotal < view.vector_count:
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
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != known["sha256"]:
                    return None
            step = FirstStep(kind, known["epoch"], faiss.read_index(str(path)), known["error"])
            return step if step.index.ntotal == known["vectors"] else None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None

    def _save(self, step: FirstStep) -> None:
        """Keep what is expensive to build; flat structures are as quickly made as read."""
        if step.exhaustive:
            return
        path, facts = self._paths(step.kind)
        content = faiss.serialize_index(step.index).tobytes()
        known = {
            "epoch": step.epoch,
            "vectors": step.index.ntotal,
            "error": step.error,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        try:
            facts.unlink(missing_ok=True)
            write_durably(path, content)
            write_durably(facts, json.dumps(known).encode())
        except OSError:
            # A reader without write permission, or a full disk, can still search.
            return

    def _paths(self, kind: str) -> tuple[Path, Path]:
        return self._folder / f"{kind}.faiss", self._folder / f"{kind}.json"


def _bitmap(allowed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(allowed, bitorder="little")


def _sample(view: View) -> NDArray[np.float32]:
    """Draw vectors evenly from the whole view, for training."""
    rows = np.unique(np.linspace(0, view.vector_count - 1, TRAINING).astype(np.int64))
    return view.rows(rows)
