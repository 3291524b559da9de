"""The same work without a service: one thread searches in given batches, another one writes.

A program of its own, with nothing else in it, that is given one round a line: {"sizes": of batches,
"probes": ids to search for, "changes": [[part of the searches before it, id, text or null], ...]}.

A change has its place among the searches and not in time, so it is the same work at any speed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, groupby, islice
from typing import Any

from benchmarks.load.clients import PROBE, TOP
from pseudoquery import Document, Index

Change = tuple[float, str, str | None]
"""After which part of the searches, of which document, and what it says then, if it is there."""


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
    changes: Sequence[Change],
) -> dict[str, float]:
    """Search in batches of these sizes while documents change; returns how long all of it took."""
    pool, left, waiting = cycle(questions), iter(probes), deque(changes)
    probe_after = max(1, len(sizes) // (len(probes) + 1))
    searched, total = 0, sum(sizes)
    start, start_cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(1) as writer:
        written = []
        for number, size in enumerate(sizes, start=1):
            due = []
            while waiting and waiting[0][0] * total <= searched:
                due.append(waiting.popleft())
            written.append(writer.submit(make, index, due))
            answers = index.search_many(list(islice(pool, size)), TOP)
            if any(len(answer.hits) != TOP for answer in answers):
                raise ValueError(f"a search found less than {TOP} documents")
            searched += size
            if number % probe_after == 0:
                probe(index, next(left, None))
        for id_ in left:
            probe(index, id_)
        written.append(writer.submit(make, index, waiting))
        for one in written:
            one.result()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu": time.process_time() - start_cpu}


def probe(index: Index, id_: str | None) -> None:
    if id_ is not None:
        index.search_many([PROBE], TOP, where={"written": id_})


def make(index: Index, changes: Iterable[Change]) -> None:
    """Make changes that came at about the same time, neighbours of one kind together, and read."""
    for deletes, group in groupby(changes, key=lambda change: change[2] is None):
        texts = {id_: text or "" for _, id_, text in group}
        if deletes:
            index.delete(texts)
        else:
            index.add(
                [Document(id_, text, metadata={"written": id_}) for id_, text in texts.items()]
            )
        for id_ in texts:
            index.get(id_)


def say(value: Any) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
