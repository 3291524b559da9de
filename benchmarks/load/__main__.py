"""Search a service from many clients at once while documents change; miss nothing, measure all.

    python -m benchmarks.load [--index FOLDER] [--seconds 60] [--turns 4]

It serves a copy of an index (by default, one of the bundled articles, which takes two minutes to
make) on this machine alone. First, service and library are compared. In turns, there is a short
load, and then the same searches in batches of the same sizes, beside the same changes, by calling
the library: what else goes on on the machine disturbs both alike. Then comes the long load. At its
end, and after a restart, every document is looked at.

It ends with 1 if there was any error, or a document was lost or resurrected; a figure is no error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.load.batches import Batches, read_batches
from benchmarks.load.clients import Load, Tally, look_at_all, metrics, read_answers, run
from benchmarks.load.ledger import Ledger, wrong
from benchmarks.load.programs import Program, call_directly, serve
from pseudoquery import Index
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.evaluation.evaluate import index_dataset

TURN_SECONDS = 15.0
TARGET = 0.9


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time of load: what came of it, and what it cost."""

    tally: Tally
    start: float
    seconds: float
    batches: Batches
    service_cpu: float
    clients_cpu: float

    @property
    def searches(self) -> int:
        """How many searches there were, those of the writers included."""
        return len(self.tally.searches) + len(self.tally.probed)

    @property
    def plain_batches(self) -> Batches:
        """The batches of the clients that only search: what a filter singles out goes alone."""
        return self.batches.without_single(len(self.tally.probed))


@dataclass(frozen=True, slots=True)
class Turn:
    """A time of load, and the same work done by calling the library."""

    load: Stretch
    seconds: float
    cpu: float

    @property
    def ratio(self) -> float:
        """The service's throughput by the library's."""
        return self.seconds / self.load.seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    arguments.add_argument("--index", type=Path, help="an index to copy and serve")
    arguments.add_argument("--model", default="default", help="the encoder, if one is made")
    arguments.add_argument("--clients", type=int, default=64)
    arguments.add_argument("--writers", type=int, default=4)
    arguments.add_argument("--pause", type=float, default=1.0, help="of a writer, in seconds")
    arguments.add_argument("--seconds", type=float, default=60.0, help="of the long load")
    arguments.add_argument("--turns", type=int, default=4, help="of the comparison")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="pseudoquery-load-") as folder:
        report = measure(Path(folder), options)
    print(json.dumps(report, indent=2))
    sys.exit(1 if report["errors"] or report["wrong"] else 0)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Compare, load, and look at every document at the end and after a restart."""
    served, used, log = folder / "served", folder / "used", folder / "log.jsonl"
    dataset = load_dataset("squad-dev", "dev")
    if options.index:
        shutil.copytree(options.index, served)
    else:
        for _ in index_dataset(dataset, served, model=options.model):
            pass
    shutil.copytree(served, used)
    documents = list(Index.open(served).documents())
    questions = [query.text for query in dataset.queries]
    service, port = serve(served, log)
    load = Load(
        port,
        questions,
        texts=[document.text for document in documents],
        kept=frozenset(document.id for document in documents),
        clients=options.clients,
        writers=options.writers,
        pause=options.pause,
    )
    ledger = Ledger()
    library = call_directly(used, questions, log)
    turns = [
        take_turn(load, ledger, min(TURN_SECONDS, options.seconds), service, library)
        for _ in range(options.turns)
    ]
    library.end(signal.SIGKILL)
    long = put_under_load(load, ledger, options.seconds, service)
    looked = [asyncio.run(look_at_all(load, ledger))]
    ended = service.end()
    service, port = serve(served, log)
    looked.append(asyncio.run(look_at_all(replace(load, port=port), ledger)))
    service.end()
    errors = [f"the service ended with {ended}"] if ended else []
    errors += Index.open(served).verify()
    tallies = [*(turn.load.tally for turn in turns), long.tally, *looked]
    return {
        "cores": os.cpu_count(),
        "documents": len(documents),
        "clients": options.clients,
        "writers": options.writers,
        **correctness(tallies, ledger, errors),
        "load": figures(long),
        "comparison": comparison(turns) if turns else {},
    }


def put_under_load(load: Load, ledger: Ledger, seconds: float, service: Program) -> Stretch:
    """Let the clients work for a while."""
    before = read_batches(asyncio.run(metrics(load.port)))
    start, service_cpu, clients_cpu = time.monotonic(), service.cpu(), time.process_time()
    tally = uvloop.run(run(load, ledger, seconds))
    stretch = Stretch(
        tally,
        start,
        time.monotonic() - start,
        read_batches(asyncio.run(metrics(load.port))).since(before),
        service.cpu() - service_cpu,
        time.process_time() - clients_cpu,
    )
    read_answers(load, tally)
    return stretch


def take_turn(
    load: Load, ledger: Ledger, seconds: float, service: Program, library: Program
) -> Turn:
    """Put the service under load for a while; then let the library do the same."""
    stretch = put_under_load(load, ledger, seconds, service)
    sizes = stretch.plain_batches.sizes()
    random.Random(0).shuffle(sizes)
    changes = [
        ((at - stretch.start) / stretch.seconds, id_, text)
        for at, id_, text in stretch.tally.changes
    ]
    library.tell({"sizes": sizes, "probes": stretch.tally.probed, "changes": sorted(changes)})
    turn = Turn(stretch, **library.hear())
    speed = f"{stretch.searches / stretch.seconds:.1f} searches a second"
    print(f"{speed}, {turn.ratio:.2f} of the library", file=sys.stderr, flush=True)
    return turn


def correctness(tallies: Sequence[Tally], ledger: Ledger, errors: list[str]) -> dict[str, Any]:
    """Count what was done and looked at, and what was wrong with it."""
    errors = errors + [error for tally in tallies for error in tally.errors]
    problems = [problem for tally in tallies for problem in wrong(ledger, tally.seen)]
    return {
        "searches": sum(len(tally.searches) + len(tally.probed) for tally in tallies),
        "changes": sum(len(tally.changes) for tally in tallies),
        "looked_at": sum(len(seen.texts) for tally in tallies for seen in tally.seen),
        "errors": len(errors),
        "first_errors": errors[:5],
        "wrong": len(problems),
        "first_wrong": problems[:5],
    }


def figures(stretch: Stretch) -> dict[str, Any]:
    """Say how fast the service was under load."""
    plain = stretch.plain_batches
    return {
        "seconds": round(stretch.seconds, 1),
        "searches_per_second": round(stretch.searches / stretch.seconds, 1),
        "search_milliseconds": percentiles(stretch.tally.searches),
        "changes": len(stretch.tally.changes),
        "change_milliseconds": percentiles(stretch.tally.writes),
        "queries_per_batch": round(plain.queries / sum(plain.counts), 1),
        "service_cpu_seconds": round(stretch.service_cpu, 1),
        "clients_cpu_seconds": round(stretch.clients_cpu, 1),
    }


def comparison(turns: Sequence[Turn]) -> dict[str, Any]:
    """Say how fast the service was beside the library."""
    searches = sum(turn.load.searches for turn in turns)
    service_seconds = sum(turn.load.seconds for turn in turns)
    library_seconds = sum(turn.seconds for turn in turns)
    milliseconds = 1000 / searches
    return {
        "turns": len(turns),
        "searches": searches,
        "searches_per_second": round(searches / service_seconds, 1),
        "searches_per_second_of_the_library": round(searches / library_seconds, 1),
        "ratio": round(library_seconds / service_seconds, 3),
        "ratio_of_each_turn": [round(turn.ratio, 2) for turn in turns],
        "target": TARGET,
        "cpu_milliseconds_per_search": {
            "service": round(milliseconds * sum(turn.load.service_cpu for turn in turns), 2),
            "clients": round(milliseconds * sum(turn.load.clients_cpu for turn in turns), 2),
            "library": round(milliseconds * sum(turn.cpu for turn in turns), 2),
        },
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th and the 99th percentile, and the largest, in milliseconds."""
    if not seconds:
        return {}
    percentiles = np.percentile(np.array(seconds) * 1000, [50, 95, 99, 100]).round(1).tolist()
    return dict(zip(("p50", "p95", "p99", "most"), percentiles, strict=True))


if __name__ == "__main__":
    main()
