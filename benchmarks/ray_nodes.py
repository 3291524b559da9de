"""Documents encoded in a second on 1, 2 and 3 Ray nodes, beside the plain command.

    python benchmarks/ray_nodes.py

All nodes are on this machine and share its cores, so it shows what Ray costs, and that nodes add up
as far as there are cores for them; what more machines give has to be measured on them. Each node
has one worker that encodes, on one core; the plain command has as many threads as cores.

The rate is counted from when every worker has delivered once, as starting them takes seconds
whatever the corpus; those seconds are in the whole time. Vectors are compared with the plain ones.
What is going on is said on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pseudoquery.building.build import build
from pseudoquery.cluster.build import build_on_cluster
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.storage.store import FolderStore

MEMORY = 200 << 20
"""Bytes for the objects of each node."""
SHARD = 256
"""Documents that a worker delivers at once."""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=3072)
    arguments.add_argument("--characters", type=int, default=200, help="of each document")
    arguments.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    arguments.add_argument("--model", default="default")
    options = arguments.parse_args()
    if options.documents < (least := SHARD * (max(options.nodes) + 2)):
        arguments.error(f"on so many nodes a rate is that of {least} documents or more.")
    print(f"All nodes share the {os.cpu_count()} cores of this machine.", flush=True)
    with TemporaryDirectory() as temporary:
        corpus = Path(temporary) / "documents.jsonl"
        write_corpus(corpus, options.documents, options.characters)
        plain = Path(temporary) / "plain"
        say(f"encoding {options.documents:,} documents by the plain command")
        clock = Clock(first=1)
        for batch in build(str(corpus), plain, model=options.model):
            clock.tick(batch.total)
        show("plain", clock, plain, plain)
        for count in options.nodes:
            folder = Path(temporary) / f"{count} nodes"
            say(f"encoding them on {count} nodes")
            # Ray Data keeps each answer until the next one is there: one more is done than is seen.
            clock = Clock(first=count, unseen=1)
            with cluster(count) as address:
                for _ in build_on_cluster(
                    address, str(corpus), folder, on_encoded=clock.tick, model=options.model
                ):
                    pass
            show(f"{count} nodes", clock, folder, plain)


class Clock:
    """Counts what is delivered, and when; the rate is that after the first deliveries."""

    def __init__(self, first: int, unseen: int = 0) -> None:
        self._first = first
        self._unseen = unseen
        self._start = time.perf_counter()
        self._done: list[tuple[float, int]] = []

    def tick(self, documents: int) -> None:
        """So many more are done."""
        self._done.append((time.perf_counter() - self._start, documents))

    def figures(self) -> dict[str, float]:
        """Return the whole time, and the rate after the first deliveries."""
        first, last = self._done[self._first - 1][0], self._done[-1][0]
        rest = sum(documents for _, documents in self._done[self._first + self._unseen :])
        return {"seconds": round(last, 1), "documents_per_second": round(rest / (last - first), 1)}


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def show(what: str, clock: Clock, folder: Path, plain: Path) -> None:
    mine, theirs = vectors(folder), vectors(plain)
    off = float(np.abs(mine - theirs).max()) if mine.shape == theirs.shape else float("inf")
    print(json.dumps({"on": what, **clock.figures(), "largest_difference": off}), flush=True)


def vectors(folder: Path) -> np.ndarray:
    with FolderStore.open(folder).snapshot() as snapshot:
        return np.concatenate([segment.decoded() for segment in snapshot.view.segments])


def write_corpus(path: Path, count: int, characters: int) -> None:
    """Cut and repeat the bundled articles until they are so many."""
    texts = cycle([document.text for document in load_dataset("squad-dev", "dev").documents()])
    with path.open("w") as file:
        for number, text in enumerate(islice(texts, count)):
            start = number * characters % max(1, len(text) - characters)
            row = {"id": str(number), "text": text[start : start + characters]}
            file.write(json.dumps(row) + "\n")


@contextmanager
def cluster(count: int) -> Iterator[str]:
    """Start nodes with a CPU each, and one more in the first, to read with."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": MEMORY, "include_dashboard": False},
    )
    try:
        for _ in range(count - 1):
            made.add_node(num_cpus=1, object_store_memory=MEMORY)
        made.wait_for_nodes()
        yield made.address
    finally:
        made.shutdown()


if __name__ == "__main__":
    main()
