"""What waits is done together, in order, and nothing that was taken is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from pseudoquery.service.batcher import Batcher, ClosedError


class Doubling:
    """Work that can be held up, and remembers its batches."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, jobs: list[int]) -> Sequence[int | Exception]:
        self.batches.append(jobs)
        self.begun.set()
        assert self.free.wait(10)
        if 13 in jobs:
            raise RuntimeError("13")
        return [ValueError(str(job)) if job < 0 else 2 * job for job in jobs]


def held(most: int) -> tuple[Doubling, Batcher[int, int], Future[int]]:
    """A batcher that is busy with its first job."""
    work = Doubling()
    batcher = Batcher("doubling", work, abs, most)
    first = batcher.submit(1)
    assert work.begun.wait(10)
    return work, batcher, first


def test_what_waits_is_done_together() -> None:
    work, batcher, first = held(most=10)
    futures = [batcher.submit(number) for number in (2, 3, 5, 7, 20, 1)]
    assert batcher.waiting == 6
    work.free.set()
    assert [future.result(10) for future in (first, *futures)] == [2, 4, 6, 10, 14, 40, 2]
    assert work.batches == [[1], [2, 3, 5], [7], [20], [1]]
    batcher.close()


def test_an_error_is_its_jobs_own() -> None:
    work, batcher, _ = held(most=10)
    futures = [batcher.submit(number) for number in (2, -3, 4)]
    work.free.set()
    assert futures[0].result(10) == 4
    assert futures[2].result(10) == 8
    with pytest.raises(ValueError, match="-3"):
        futures[1].result(10)
    with pytest.raises(RuntimeError, match="13"):
        batcher.submit(13).result(10)
    assert batcher.submit(6).result(10) == 12
    batcher.close()


def test_a_job_that_nobody_waits_for_is_not_begun() -> None:
    work, batcher, first = held(most=10)
    futures = [batcher.submit(number) for number in (2, 3)]
    assert futures[0].cancel()
    assert not first.cancel()
    work.free.set()
    assert futures[1].result(10) == 6
    assert work.batches == [[1], [3]]
    only = batcher.submit(4)
    assert only.result(10) == 8
    batcher.close()


def test_close_finishes_what_was_taken() -> None:
    work, batcher, _ = held(most=2)
    futures = [batcher.submit(number) for number in (1, 2, 2)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    work.free.set()
    closing.join(10)
    assert not closing.is_alive()
    assert [future.result(0) for future in futures] == [2, 4, 4]
    with pytest.raises(ClosedError):
        batcher.submit(1)
