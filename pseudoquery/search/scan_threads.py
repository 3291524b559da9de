"""Threads that scan: they wait for work between searches, as a search is soon over."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Share = TypeVar("Share")


def thread_count() -> int:
    """Return how many threads a search may use: as many as torch."""
    return torch.get_num_threads()


def run_in_threads(work: Callable[[Share], None], shares: Sequence[Share]) -> None:
    """Do the work for each share, in several threads if there are several shares."""
    threads = thread_count()
    if threads < 2 or len(shares) < 2:
        for share in shares:
            work(share)
        return
    for _ in _pool(threads, os.getpid()).map(work, shares):
        pass


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Make the threads of a process: one that was forked has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pseudoquery-scan")
