"""A thread that does jobs of many threads: all that wait when it becomes free, together."""

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
    """A job came after the batcher was closed."""


class Batcher(Generic[Job, Result]):
    """A thread, and the jobs that wait for it in the order of their arrival.

    No job waits for others: a single job starts at once, and others gather while it runs.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Job]], Sequence[Result | Exception]],
        size: Callable[[Job], int],
        limit: int,
    ) -> None:
        """Give jobs to `work` together, as long as the sum of their sizes is at most `limit`."""
        self._work = work
        self._size = size
        self._limit = limit
        self._jobs: deque[tuple[Job, Future[Result]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # A daemon, so that a program that forgets to close it can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Result]:
        """Accept a job. It can be cancelled until it starts."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise ClosedError("the service is shutting down.")
            self._jobs.append((job, future))
            self._changed.notify()
        return future

    @property
    def waiting(self) -> int:
        """How many jobs have not started."""
        return len(self._jobs)

    def close(self) -> None:
        """Finish the accepted jobs, and accept no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            started = [
                (job, future) for job, future in batch if future.set_running_or_notify_cancel()
            ]
            if not started:
                continue
            try:
                results = self._work([job for job, _ in started])
            except Exception as error:  # whatever it is, its jobs get it, and the thread goes on
                results = [error] * len(started)
            for (_, future), result in zip(started, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self) -> list[tuple[Job, Future[Result]]]:
        """Wait for jobs, and take as many as may run together; none when the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            batch: list[tuple[Job, Future[Result]]] = []
            total = 0
            while self._jobs:
                total += self._size(self._jobs[0][0])
                if batch and total > self._limit:
                    break
                batch.append(self._jobs.popleft())
            return batch
