"""Independent work in several threads at once, each of which computes alone.

Torch shares out every operation among its threads. Many small ones wait for each other most of the
time then, above all where others are at work; whole tasks don't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

Part = TypeVar("Part")
Done = TypeVar("Done")

MOST_THREADS = 4
"""More threads of small steps would wait for Python's lock."""


def in_threads(work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
    """Do the work for each part, on a CPU, in as many threads as torch has."""
    threads = torch.get_num_threads()
    workers = min(threads, len(parts), MOST_THREADS)
    if threads < 2 or not workers:
        return [work(part) for part in parts]
    all_begun = Barrier(workers + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # Only what was asked once holds for this thread for good.
        all_begun.wait()

    with ThreadPoolExecutor(workers, initializer=begin) as pool:
        done = pool.map(work, parts)
        all_begun.wait()
        # It was said for every thread that begins from now on; so take it back at once.
        torch.set_num_threads(threads)
        return list(done)
