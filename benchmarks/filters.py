"""Measure how long it takes to find the documents that satisfy a filter.

    python benchmarks/filters.py --documents 100000

Each filter is asked in two ways, by turns, in one process: through the table of fields, and by
reading the metadata of every document, as folders of format 1 do. Both must find the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.bench.machine import describe_machine
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.store import FolderStore

WORDS = 73
AT_ONCE = 5000
NO_VECTORS = DocumentVectors(np.zeros((1, 2), np.float32))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=100_000)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    print(json.dumps(describe_machine()))
    with TemporaryDirectory() as temporary:
        store = FolderStore.create(Path(temporary) / "index", Settings("", "", 2, {}))
        fill(store, options.documents)
        for where in filters(options.documents):
            with store.snapshot() as snapshot:
                measure(where, snapshot, options.repeats)


def fill(store: FolderStore, count: int) -> None:
    text = " ".join(f"word{n}" for n in range(WORDS))
    with store.writer() as writer:
        for start in range(0, count, AT_ONCE):
            documents = [
                Document(f"id {n}", text, metadata={"n": n, "even": n % 2 == 0, "tags": ["all"]})
                for n in range(start, min(start + AT_ONCE, count))
            ]
            writer.add(documents, [NO_VECTORS] * len(documents))


def filters(count: int) -> list[dict[str, Any]]:
    """Filters that ever more documents satisfy."""
    return [
        {"id": ["id 1", "id 2", "id 3"]},
        {"n": 7},
        {"n": {"<": count // 10_000}},
        {"n": {"<": count // 100}},
        {"n": {">=": count // 10, "<": count // 5}},
        {"even": True},
        {"tags": "all"},
    ]


def measure(where: dict[str, Any], snapshot: Any, repeats: int) -> None:
    looked_up: list[float] = []
    read: list[float] = []
    found = every = np.zeros(0, np.int64)
    for _ in range(repeats):
        snapshot._has_fields = True
        found = timed(looked_up, lambda: snapshot.matching_ordinals(where))
        snapshot._has_fields = False
        every = timed(read, lambda: snapshot.matching_ordinals(where))
    assert found.tolist() == every.tolist()
    row = {
        "where": where,
        "matching": len(found),
        "looked_up_ms": round(1000 * median(looked_up), 3),
        "read_ms": round(1000 * median(read), 1),
        "ratio": round(median(read) / median(looked_up), 1),
    }
    print(json.dumps(row), flush=True)


def timed(times: list[float], work: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    begin = time.process_time()
    result = work()
    times.append(time.process_time() - begin)
    return result


if __name__ == "__main__":
    main()
