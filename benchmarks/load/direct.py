"""The same work without a service: one thread searches in given batches, another one writes.

A program of its own, with nothing else in it, that is given one round a line: {"sizes": of batches,
"probes": ids to search for, "changes": [[seconds after the start, id, text or null], ...]}.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.load.clients import PROBE, TOP
from pseudoquery import Document, Index


def main() -> None:
    folder, questions = sys.argv[1], json.loads(sys.stdin.readline())
    index = Index.open(folder)
    index.search("ready", 1)
    say("ready")
    for line in sys.stdin:
        say(carry_out(index, questions, **json.loads(line)))


def carry_out(
    index: Index,
    questions: Sequence[str],
    sizes: Sequence[int],
    probes: Sequence[str],
    changes: Sequence[tuple[float, str, str | None]],
) -> dict[str, float]:
    """Search in batches of these sizes while documents change; returns the seconds of searching."""
    pool = cycle(questions)
    done = threading.Event()
    writer = threading.Thread(target=write, args=(index, changes, done))
    start, start_cpu = time.perf_counter(), time.process_time()
    writer.start()
    probe_after = max(1, len(sizes) // (len(probes) + 1))
    left = iter(probes)
    for number, size in enumerate(sizes, start=1):
        answers = index.search_many(list(islice(pool, size)), TOP)
        if any(len(answer.hits) != TOP for answer in answers):
            raise ValueError(f"a search found less than {TOP} documents")
        if number % probe_after == 0:
            probe(index, next(left, None))
    for id_ in left:
        probe(index, id_)
    seconds = time.perf_counter() - start
    done.set()
    writer.join()
    return {"seconds": seconds, "cpu": time.process_time() - start_cpu}


def probe(index: Index, id_: str | None) -> None:
    if id_ is not None:
        index.search_many([PROBE], TOP, where={"written": id_})


def write(
    index: Index, changes: Sequence[tuple[float, str, str | None]], done: threading.Event
) -> None:
    """Make each change when it is due; when the searches are done, the rest at once."""
    start = time.perf_counter()
    for due, id_, text in changes:
        done.wait(max(0.0, start + due - time.perf_counter()))
        if text is None:
            index.delete([id_])
        else:
            index.add([Document(id_, text, metadata={"written": id_})])
        index.get(id_)


def say(value: Any) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
