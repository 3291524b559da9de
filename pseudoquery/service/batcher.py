"""Jobs from many threads, done by one: whatever waits when it becomes free is done together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from pseudoquery.errors import PseudoqueryError

Job = TypeVar("Job")
Result = TypeVar("Result")


class ClosedError(PseudoqueryError):
    """A job came when no more were taken."""


class Batcher(Generic[Job, Result]):
    """A thread of its own, and the jobs that wait for it, first come, first served.

    Nothing waits for company: a lone job is done at once, and while it is done others gather.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Job]], Sequence[Result | Exception]],
        size: Callable[[Job], int],
        most: int,
    ) -> None:
        """Jobs are given to `work` together as long as the sum of their sizes is within `most`."""
        self._work = work
        self._size = size
        self._most = most
        self._jobs: deque[tuple[Job, Future[Result]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # A daemon, so that a program that forgets to close it can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Result]:
        """Take a job; it can be cancelled until it is begun."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise ClosedError("the service is shutting down.")
            self._jobs.append((job, future))
            self._changed.notify()
        return future

    @property
    def waiting(self) -> int:
        """How many jobs have not been begun."""
        return len(self._jobs)

    def close(self) -> None:
        """Finish what was taken, and take no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            begun = [one for one in batch if one[1].set_running_or_notify_cancel()]
            if not begun:
                continue
            try:
                results = self._work([job for job, _ in begun])
            except Exception as error:  # whatever it is, someone waits for it, and others come
                results = [error] * len(begun)
            for (_, future), result in zip(begun, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self) -> list[tuple[Job, Future[Result]]]:
        """Wait for jobs, and take as many as may go together; none when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            batch: list[tuple[Job, Future[Result]]] = []
            total = 0
            while self._jobs:
                total += self._size(self._jobs[0][0])
                if batch and total > self._most:
                    break
                batch.append(self._jobs.popleft())
            return batch
