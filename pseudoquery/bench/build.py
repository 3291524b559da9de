"""How much memory building an index takes at different sizes, and how long opening it takes.

Each index is built by a process of its own, whose peak memory is measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pseudoquery.bench.machine import floor, synthetic_vectors
from pseudoquery.bench.report import Check, Report, Timing
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import search
from pseudoquery.storage.incoming import BATCH_DOCUMENTS
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore

WRITTEN = 128 << 20
"""Bytes written to measure how fast the disk is."""
ALLOWED_GROWTH = 200e6
"""How many more bytes of memory the largest index may take than the smallest."""
WORDS = ("river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water")


@dataclass(frozen=True, slots=True)
class StepCost:
    """The time, memory and disk space that a step took."""

    seconds: float
    resident: int
    """The most bytes of memory that the process held, those of mapped files included."""
    private: int
    """The most without mapped files, whose memory the system takes back when it needs it."""
    bytes: int = 0
    """The size on disk."""


def bench_build(
    sizes: Sequence[int] = (10_000, 100_000),
    k: int = 8,
    dimension: int = 384,
    batch: int = BATCH_DOCUMENTS,
    where: Path | None = None,
) -> Report:
    """Build indexes of so many documents from synthetic vectors, then open and search them.

    The floor of building is writing its files once at the measured speed of the disk; of opening,
    reading the numbers and counts of the documents; of a search, reading all codes once.
    """
    rows: list[Timing] = []
    costs: dict[int, list[StepCost]] = {}
    with TemporaryDirectory(dir=where) as temporary:
        speed = write_speed(Path(temporary))
        for size in sizes:
            folder = Path(temporary) / str(size)
            built, opened, derived, searched = _run_in_process(folder, size, k, dimension, batch)
            costs[size] = [built, derived]
            codes = size * k * (dimension + 8)
            each = f"{1e6 * built.seconds / size:,.0f} µs a document"
            rows += [
                Timing(
                    f"building {size:,}",
                    built.seconds,
                    built.bytes / speed,
                    _describe_memory(built, each),
                ),
                Timing(
                    f"opening {size:,}", opened.seconds, floor(16 * size), _describe_memory(opened)
                ),
                Timing(
                    f"codes of {size:,}",
                    derived.seconds,
                    floor(2 * size * k * dimension) + codes / speed,
                    _describe_memory(derived),
                ),
                Timing(
                    f"opening {size:,} and a search",
                    searched.seconds,
                    floor(codes),
                    _describe_memory(searched),
                ),
            ]
    data = {
        "k": k,
        "dimension": dimension,
        "documents_in_a_commit": batch,
        "disk_gb_per_s": round(speed / 1e9, 2),
    }
    return Report("build", data, rows, _check_growth(costs))


def _check_growth(costs: Mapping[int, Sequence[StepCost]]) -> list[Check]:
    """Compare the memory of building, and of making codes, at the smallest and largest size."""
    if len(costs) < 2:
        return []
    few, many = costs[min(costs)], costs[max(costs)]
    between = f"from {min(costs):,} to {max(costs):,} documents"
    return [
        Check(
            f"growth of memory {between}, {name}",
            (getattr(many[step], kind) - getattr(few[step], kind)) / 1e6,
            ALLOWED_GROWTH / 1e6,
            unit="MB",
        )
        for step, name, kind in (
            (0, "building, all that is resident", "resident"),
            (1, "making codes, without mapped files", "private"),
        )
    ]


def write_speed(folder: Path) -> float:
    """Measure how many bytes a second reach the disk."""
    content = os.urandom(1 << 20) * (WRITTEN >> 20)
    path = folder / "probe"
    start = time.perf_counter()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    path.unlink()
    return len(content) / seconds


def _run_in_process(folder: Path, size: int, k: int, dimension: int, batch: int) -> list[StepCost]:
    """Run all steps in another process, which holds nothing else in memory."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_run_steps, (folder, size, k, dimension, batch))


def _run_steps(folder: Path, size: int, k: int, dimension: int, batch: int) -> list[StepCost]:
    return [
        run_watched(_build, folder, size, k, dimension, batch),
        run_watched(_open, folder),
        run_watched(_derive, folder),
        run_watched(_search, folder, dimension),
    ]


def run_watched(job: Callable[..., int], *arguments: Any) -> StepCost:
    """Run a job, which returns a number of bytes, and measure its time and memory."""
    start = time.perf_counter()
    with _watch_memory() as peaks:
        size = job(*arguments)
    return StepCost(time.perf_counter() - start, peaks["VmRSS"], peaks["RssAnon"], size)


@contextmanager
def _watch_memory() -> Iterator[dict[str, int]]:
    """Watch how much memory this process holds; yield the highest values so far, in bytes."""
    peaks = {"VmRSS": 0, "RssAnon": 0}
    ended = threading.Event()

    def look() -> None:
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in peaks:
                peaks[name] = max(peaks[name], 1024 * int(value.split()[0]))

    def watch() -> None:
        while not ended.wait(0.02):
            look()

    look()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()
        look()


def _build(folder: Path, size: int, k: int, dimension: int, batch: int) -> int:
    store = FolderStore.create(folder, Settings("", "", dimension, {}))
    with store.writer() as writer:
        for start in range(0, size, batch):
            positions = range(start, min(start + batch, size))
            vectors = synthetic_vectors(len(positions), k, dimension, seed=start)
            writer.add(
                [Document(f"id {position}", _make_text(position)) for position in positions],
                [DocumentVectors(each) for each in vectors],
            )
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _make_text(position: int) -> str:
    """Make a text of about a hundred characters that differs from document to document."""
    return " ".join(WORDS[position // 10**digit % 10] for digit in range(20))


def _open(folder: Path) -> int:
    with FolderStore.open(folder).snapshot() as snapshot:
        return snapshot.view.vector_count


def _derive(folder: Path) -> int:
    with FolderStore.open(folder).snapshot() as snapshot:
        return Structures(folder).get("flat8", snapshot.view).total


def _search(folder: Path, dimension: int) -> int:
    query = np.ones((1, dimension), dtype=np.float32) / dimension**0.5
    with FolderStore.open(folder).snapshot() as snapshot:
        step = Structures(folder).get("flat8", snapshot.view)
        rankings = search(snapshot.view, step, [query], Representation(scale=10.0), 10)
    return len(rankings[0].documents)


def _describe_memory(cost: StepCost, first: str = "") -> str:
    memory = f"{cost.resident / 1e6:,.0f} MB held, {cost.private / 1e6:,.0f} MB its own"
    return f"{first}, {memory}" if first else memory
