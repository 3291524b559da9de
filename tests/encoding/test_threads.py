from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from pseudoquery.encoding.threads import in_threads


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def asked_in_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_results_come_in_the_order_of_the_parts() -> None:
    for parts in ([], [3], list(range(20))):
        assert in_threads(lambda part: part * part, parts) == [part * part for part in parts]


@pytest.mark.usefixtures("two_threads")
def test_parts_are_worked_on_at_once_and_each_thread_computes_alone() -> None:
    both = threading.Barrier(2)

    def meet(_: int) -> int:
        both.wait(timeout=60)  # it would never end if one came after the other
        return torch.get_num_threads()

    assert in_threads(meet, range(6)) == [1] * 6
    assert torch.get_num_threads() == asked_in_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_that_begin_meanwhile_are_left_alone() -> None:
    def wait_for_two(_: int) -> bool:
        end = time.monotonic() + 10
        while asked_in_a_new_thread() != 2 and time.monotonic() < end:
            time.sleep(0.01)
        return asked_in_a_new_thread() == 2

    assert all(in_threads(wait_for_two, range(2)))


@pytest.mark.usefixtures("two_threads")
def test_what_fails_fails_here_and_leaves_nothing_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda part: 1 // part, [1, 0, 2])
    assert threading.active_count() == before
    assert torch.get_num_threads() == asked_in_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
def test_one_part_is_computed_alone_too() -> None:
    assert in_threads(lambda _: torch.get_num_threads(), [0]) == [1]
    assert torch.get_num_threads() == asked_in_a_new_thread() == 2
