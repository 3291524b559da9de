"""Measure what a search in Milvus takes, beside an index folder with the same vectors.

    OMP_NUM_THREADS=1 python -m benchmarks.milvus_latency

It starts a milvus-lite and, where it can run, the server 2.3.5 (`make .venv-milvus/server.stamp`),
as the tests do but with the server's usual settings; `--address` names another, that runs already.
Queries are asked one at a time, each of all engines in turn, so that a busy machine is as busy for
all. They are vectors: encoding a question takes equally long everywhere. An answer counts as
recalled by the documents that the folder's proven answer has.

Each engine first writes what it got into segments, as it does by itself in time: rows that only
just came in are searched more slowly, by milvus-lite several times. What is going on is said on
standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from pymilvus import MilvusClient

from pseudoquery.bench.machine import describe_machine, synthetic_vectors
from pseudoquery.bench.search import fill_store, synthetic_queries
from pseudoquery.index import Index
from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import Collection
from pseudoquery.milvus.index import MilvusIndex
from pseudoquery.milvus.search import MilvusSearch
from pseudoquery.search.structures import Structures
from pseudoquery.search.two_step import RecallDepth, search
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore
from tests.cluster.milvus_server import MilvusLite, MilvusStandalone, why_not

TOP, RECALL, WARM = 10, 200, 3
PROVEN, TWO_STEPS = "folder, proven (flat8)", "folder, two steps (flat)"


class Found(NamedTuple):
    """What an engine answered."""

    ids: list[str]
    certified: bool


Ask = Callable[[NDArray[np.float32]], Found]


class AsInstalled(MilvusStandalone):
    """The server 2.3.5 as it comes."""

    settings = ()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=2_000)
    arguments.add_argument("--k", type=int, default=8)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--queries", type=int, default=50)
    arguments.add_argument("--address", action="append", default=[], metavar="http://HOST:PORT")
    options = arguments.parse_args()
    vectors = synthetic_vectors(options.documents, options.k, options.dimension)
    queries = synthetic_queries(vectors, options.queries)
    settings = Representation(k=options.k, scale=10.0)
    tell({**vars(options), "top": TOP, "recall": RECALL, "machine": describe_machine()})
    with TemporaryDirectory() as temporary, engines(Path(temporary), options.address) as running:
        store = fill_store(Path(temporary) / "index", vectors, "float16")
        with store.snapshot() as snapshot:
            asks = {
                PROVEN: in_folder(store, snapshot, "flat8", settings),
                TWO_STEPS: in_folder(store, snapshot, "flat", settings),
            }
            for name, url in running.items():
                say(f"copying {options.documents:,} documents to {name}")
                asks[name] = in_milvus(Index.open(store.folder), url, settings)
            taken, answers = measure(asks, queries)
    for name, times in taken.items():
        tell({"engine": name, **row(times, taken[TWO_STEPS], answers, name)})


def tell(facts: dict[str, Any]) -> None:
    print(json.dumps(facts), flush=True)


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


@contextmanager
def engines(folder: Path, addresses: Sequence[str]) -> Iterator[dict[str, str]]:
    """Start what can be started here; returns the addresses by name."""
    started: dict[str, MilvusLite] = {}
    try:
        for name, engine in (("milvus-lite 3.2.2", MilvusLite), ("Milvus 2.3.5", AsInstalled)):
            if engine is AsInstalled and (problem := why_not()):
                tell({"engine": name, "left_out": problem})
                continue
            say(f"starting {name}")
            home = folder / engine.__name__
            home.mkdir()
            started[name] = engine(home)
        yield {name: one.url for name, one in started.items()} | {one: one for one in addresses}
    finally:
        for one in started.values():
            one.stop()


def in_folder(
    store: FolderStore, snapshot: FolderSnapshot, structure: str, settings: Representation
) -> Ask:
    view, ids = snapshot.view, snapshot.ids()
    step = Structures(store.folder).get(structure, view)

    def ask(query: NDArray[np.float32]) -> Found:
        (best,) = search(view, step, [query], settings, TOP, depth=RecallDepth(RECALL))
        return Found(
            [ids[int(view.ordinals[position])] for position in best.documents], best.certified
        )

    return ask


def in_milvus(index: Index, url: str, settings: Representation) -> Ask:
    name = f"latency_{uuid4().hex}"
    copy = MilvusIndex(Collection.create(f"{url}/{name}", index.settings))
    copy.import_from(index)
    MilvusClient(url).flush(name)
    asking = MilvusSearch(copy.collection, settings, TOP, RecallDepth(RECALL), None, exact=False)

    def ask(query: NDArray[np.float32]) -> Found:
        (best,) = asking.best([query])
        return Found([document.stored.document.id for document in best.documents], best.certified)

    return ask


def measure(
    asks: dict[str, Ask], queries: Sequence[NDArray[np.float32]]
) -> tuple[dict[str, list[float]], dict[str, list[Found]]]:
    """Ask each query of all in turn."""
    taken: dict[str, list[float]] = {name: [] for name in asks}
    answers: dict[str, list[Found]] = {name: [] for name in asks}
    for turn, query in enumerate([*queries[:WARM], *queries]):
        if turn % 10 == WARM:
            say(f"{turn - WARM} of {len(queries)} queries are measured")
        for name, ask in asks.items():
            start = time.perf_counter()
            found = ask(query)
            if turn >= WARM:
                taken[name].append(time.perf_counter() - start)
                answers[name].append(found)
    return taken, answers


def row(
    times: list[float], beside: list[float], answers: dict[str, list[Found]], name: str
) -> dict[str, float]:
    truth = [set(answer.ids) for answer in answers[PROVEN]]
    shared = [
        len(set(answer.ids) & true) for answer, true in zip(answers[name], truth, strict=True)
    ]
    return {
        "median_ms": round(1000 * float(np.median(times)), 2),
        "p95_ms": round(1000 * float(np.quantile(times, 0.95)), 2),
        "ratio": round(float(np.median(times) / np.median(beside)), 1),
        "recall": round(sum(shared) / sum(map(len, truth)), 4),
        "proven": round(float(np.mean([answer.certified for answer in answers[name]])), 3),
    }


if __name__ == "__main__":
    main()
