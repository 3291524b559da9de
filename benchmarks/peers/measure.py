"""What a peer is given, how it is timed, and what it writes down.

It runs in each peer's own environment, so it needs nothing but numpy. A query's vectors are given:
one query at a time is timed, from its vectors to the numbers of the best documents.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP, DEEP = 10, 100
"""How many documents are asked for: to be timed and judged, and for the recall further down."""
DEEP_QUERIES = 50
WARM = 5
YARDSTICK_EVERY = 25


@dataclass(frozen=True, slots=True)
class Vectors:
    """Documents and queries in one representation, the same for all peers."""

    documents: NDArray[Any]
    """(vectors, dim), mapped: the vectors of all documents, one after the other."""
    offsets: NDArray[np.int64]
    """(documents + 1,): where the vectors of each document begin."""
    queries: NDArray[np.float32]
    query_offsets: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many documents there are."""
        return len(self.offsets) - 1

    @property
    def widest(self) -> int:
        """How many vectors a document has at most."""
        return int(np.diff(self.offsets).max())

    def document(self, number: int) -> NDArray[Any]:
        """Return the vectors of a document, (vectors, dim)."""
        return self.documents[self.offsets[number] : self.offsets[number + 1]]

    def query(self, number: int) -> NDArray[np.float32]:
        """Return the vectors of a query, (vectors, dim)."""
        return self.queries[self.query_offsets[number] : self.query_offsets[number + 1]]

    def owners(self) -> NDArray[np.int64]:
        """Say which document each vector belongs to."""
        return np.repeat(np.arange(self.count), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class Inputs:
    """The folder that `inputs.py` has written: texts, vectors, and the exact answers."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the folder."""
        facts: dict[str, Any] = json.loads((self.folder / "facts.json").read_text("utf-8"))
        return facts

    @property
    def few(self) -> list[str]:
        """Name the representations that a vector database is tried with: one vector, and k."""
        names = list(self.facts["representations"])
        return [name for name in names if name == "one"] + [
            name for name in names if name.startswith("pseudo")
        ][:1]

    def vectors(self, name: str) -> Vectors:
        """Map the vectors of a representation."""
        facts = self.facts["representations"][name]
        path = self.folder / name
        documents = np.memmap(path.with_suffix(".documents"), facts["dtype"], "r")
        return Vectors(
            documents.reshape(-1, self.facts["dimension"]),
            np.load(path.with_suffix(".offsets.npy")),
            np.load(path.with_suffix(".queries.npy")),
            np.load(path.with_suffix(".query_offsets.npy")),
        )

    def texts(self, of: str) -> list[str]:
        """Read the texts of the documents or of the queries."""
        texts: list[str] = json.loads((self.folder / f"{of}.json").read_text("utf-8"))
        return texts


@dataclass(frozen=True, slots=True)
class Way:
    """One way to search: a peer with its settings, ready to be asked."""

    name: str
    representation: str
    search: Callable[[int, int], Sequence[int]]
    """A query's number and how many documents are wanted, to their numbers, best first."""
    build_seconds: float
    bytes: int
    """What it needs on disk to search; not the texts, which every program has to keep."""
    score: str = "max"
    """Its exact answer is by the largest dot product (MaxSim), or by the paper's softmax; "" if
    it has none."""
    effort: int | None = None
    """For an approximate search, how far it looks: the points of one curve differ in this."""
    proven: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def run(peer: str, packages: Sequence[str], ways: Callable[[Inputs, Path], Iterator[Way]]) -> None:
    """Try all ways of a peer: `python -m benchmarks.peers.PEER INPUTS OUT`."""
    inputs, out = Inputs(Path(sys.argv[1])), Path(sys.argv[2])
    with TemporaryDirectory(dir=out) as folder:
        rows = [
            measure(way, inputs, out / f"{peer}-{number}")
            for number, way in enumerate(ways(inputs, Path(folder)))
        ]
    result = {
        "peer": peer,
        "versions": {package: version(package) for package in packages},
        "rows": rows,
    }
    (out / f"{peer}.json").write_text(json.dumps(result, indent=1), "utf-8")


def measure(way: Way, inputs: Inputs, path: Path) -> dict[str, Any]:
    """Ask all queries, one at a time; keep the rankings beside the figures."""
    facts = inputs.facts
    count = facts["representations"].get(way.representation, facts)["queries"]
    rule = np.ones(16 << 20, np.float32)
    rules, taken, rankings = [], [], []
    for query in range(min(WARM, count)):
        way.search(query, TOP)
    for query in range(count):
        if query % YARDSTICK_EVERY == 0:
            start = time.perf_counter()
            rule.sum()
            rules.append(time.perf_counter() - start)
        start = time.perf_counter()
        best = way.search(query, TOP)
        taken.append(time.perf_counter() - start)
        rankings.append(best)
    deep = [way.search(query, DEEP) for query in range(min(DEEP_QUERIES, count))]
    np.savez(path.with_suffix(".npz"), top=padded(rankings, TOP), deep=padded(deep, DEEP))
    row = {
        "name": way.name,
        "representation": way.representation,
        "score": way.score,
        "effort": way.effort,
        "proven": way.proven,
        "settings": way.settings,
        "queries": count,
        "median_ms": 1e3 * float(np.median(taken)),
        "p95_ms": 1e3 * float(np.quantile(taken, 0.95)),
        "build_seconds": way.build_seconds,
        "bytes_per_document": way.bytes / facts["documents"],
        "yardstick_ms": 1e3 * float(np.median(rules)),
        "cores": len(os.sched_getaffinity(0)),
        "rankings": path.with_suffix(".npz").name,
    }
    effort = "" if way.effort is None else f", {way.effort}"
    print(f"  {way.representation}, {way.name}{effort}: {row['median_ms']:.2f} ms", flush=True)
    return row


def padded(rankings: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    """Put rankings into one array, with -1 where there is no document."""
    table = np.full((len(rankings), width), -1, np.int64)
    for row, ranking in zip(table, rankings, strict=True):
        row[: len(ranking)] = list(ranking)[:width]
    return table


def distinct(documents: Sequence[int], top: int) -> list[int]:
    """Keep the first mention of each document, in order."""
    return list(dict.fromkeys(documents))[:top]


def size_of(path: Path) -> int:
    """Add up a folder's files; what one has set aside and not written to is not counted."""
    facts = [file.stat() for file in path.rglob("*") if file.is_file()]
    return sum(min(fact.st_size, 512 * fact.st_blocks) for fact in facts)
