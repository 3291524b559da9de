"""A property that several threads ask for at once is computed once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

import pytest

from pseudoquery.once import once_property

THREADS = 8


class Counted:
    def __init__(self) -> None:
        self.calls = 0
        self.together = Barrier(THREADS)

    @once_property
    def value(self) -> object:
        """Rest a moment, in which others would come in if they could."""
        self.calls += 1
        sleep(0.001)
        return object()

    def ask(self) -> object:
        self.together.wait()
        return self.value

    @once_property
    def broken(self) -> object:
        self.calls += 1
        raise ValueError("not yet")


def test_all_threads_get_the_same_value() -> None:
    for _ in range(50):
        counted = Counted()
        with ThreadPoolExecutor(THREADS) as pool:
            values = {
                id(job.result()) for job in [pool.submit(counted.ask) for _ in range(THREADS)]
            }
        assert (len(values), counted.calls) == (1, 1)


def test_each_object_has_its_own_value() -> None:
    first, second = Counted(), Counted()
    first.together = second.together = Barrier(1)
    assert first.ask() is first.ask()
    assert first.ask() is not second.ask()


def test_what_fails_is_tried_again() -> None:
    counted = Counted()
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            _ = counted.broken
    assert counted.calls == 2
