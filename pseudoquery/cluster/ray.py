"""Ray, in one place: a stream of messages through a pool of workers on many machines.

    connected("auto")   the cluster that this machine belongs to
    spread(...)         messages in; what the workers make of them out, in any order

Ray Data moves the messages, restarts workers, and sends again what a lost machine had.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from pseudoquery import errors
from pseudoquery.errors import ClusterError, PseudoqueryError

WorkerMessage: TypeAlias = tuple[dict[str, Any], bytes]
"""A few facts, as plain JSON, and a body."""
Read: TypeAlias = Callable[[WorkerMessage], Iterator[WorkerMessage]]
Work: TypeAlias = Callable[[WorkerMessage], WorkerMessage]

Pool: TypeAlias = tuple[int, dict[str, int]]
"""How many workers there are, and what each one has."""
Shared = TypeVar("Shared")

LOCAL = "local"
ATTEMPTS = 4
"""How often a worker is begun that dies; a document that kills each one has to end a run."""
READERS = 8
"""One CPU of so many, and at least one, is left to those who read."""
PATIENCE = 10
"""Seconds to wait for a cluster that does not answer."""


@contextmanager
def connect(on: str) -> Iterator[None]:
    """Use a cluster: "local" starts one here, "auto" is this machine's, or HOST:PORT, ray://..."""
    ray = _ray()
    _refuse_silent(on)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    here = {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    try:
        with _silence():
            ray.init(address=on, **quiet, **(here if on == LOCAL else {}))
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise _unreachable(on, error) from error
    try:
        yield
    finally:
        ray.shutdown()


def put_shared(value: Shared) -> Callable[[], Shared]:
    """Lay something large where all workers can get it, by calling what this returns."""
    return partial(_get, _ray().put(value))


def _get(reference: Any) -> Any:
    return _ray().get(reference)


def worker_device() -> str:
    """Name the GPU that Ray gave this worker, if it gave one: it shows no other."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def map_on_workers(
    messages: Sequence[WorkerMessage], begin: Callable[[], Work], read: Read | None = None
) -> Iterator[WorkerMessage]:
    """Give each message to one of a pool of workers; yield their answers as they come.

    `begin` makes a worker, once in each process, with a GPU of its own if there are any. With
    `read`, each message is first made into many, by other processes.
    """
    ray = _ray()
    pool = _pool(ray.cluster_resources())
    with _plain_errors(ray):
        for row in _rows_inside(ray, messages, begin, read, pool):
            if row["error"]:
                kind, said = json.loads(row["error"])
                raise getattr(errors, kind)(said)
            yield json.loads(row["facts"]), row["body"]


def _rows_inside(ray: Any, *job: Any) -> Iterator[dict[str, Any]]:
    """Let Ray Data run here, or, as it does not run through ray://, in a process of the cluster."""
    if not import_module("ray.util.client").ray.is_connected():
        yield from _rows(*job)
        return
    stream = ray.remote(num_cpus=0)(_Stream).remote(*job)
    while (row := ray.get(stream.next_row.remote())) is not None:
        yield row


class _Stream:
    """The rows of Ray Data, one by one."""

    def __init__(self, *job: Any) -> None:
        self._rows = _rows(*job)

    def next_row(self) -> dict[str, Any] | None:
        return next(self._rows, None)


def _rows(
    messages: Sequence[WorkerMessage], begin: Callable[[], Work], read: Read | None, pool: Pool
) -> Iterator[dict[str, Any]]:
    data = import_module("ray.data")
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # It announces that retries will be said in another way from 2.64 on.
    warnings.filterwarnings("ignore", ".*ray_remote_args.* is deprecated")
    size, resources = pool
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # each message travels alone, however small it is
    context.max_consecutive_actor_init_deaths = ATTEMPTS
    if read is None:
        size = min(size, max(1, len(messages)))
    rows = data.from_items(list(map(_row, messages)), override_num_blocks=max(1, len(messages)))
    if read is not None:
        # Readers ask for no CPU, though some are left to them: when machines are lost, workers
        # that start anew take whatever is free, and nothing would ever be read again.
        rows = rows.map_batches(
            _reader(read),
            batch_size=1,
            num_cpus=0,
            max_retries=ATTEMPTS - 1,
            **_at_most_readers(data, max(1, size // READERS)),
        )
    answers = rows.map_batches(
        _Worker,
        fn_constructor_args=(begin,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
        max_restarts=ATTEMPTS - 1,
        # Not these: until a lost machine is declared dead, Ray asks its workers again and again.
        max_task_retries=-1,
        **resources,
    )
    # Not by iter_rows, whose threads read ahead and go on when they are left: a process that then
    # leaves the cluster, with one of them inside of Ray, crashes.
    for bundle in answers.iter_internal_ref_bundles():
        for block in bundle.block_refs:
            yield from _ray().get(block).to_pylist()


def _at_most_readers(data: Any, count: int) -> dict[str, Any]:
    """Limit how many processes read at once, in the words of the Ray that is installed."""
    if hasattr(data, "TaskPoolStrategy"):
        return {"compute": data.TaskPoolStrategy(size=count)}
    return {"concurrency": count}  # before Ray 2.51


def _pool(there: dict[str, float]) -> Pool:
    """Choose how many workers there are, and what each one has: a GPU if there are any."""
    cpus, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
    if cpus < 2:
        raise ClusterError(
            f"the cluster has {cpus} CPU; it needs two, as one has to read what others encode."
        )
    for_workers = cpus - max(1, cpus // READERS)
    if gpus:
        return min(gpus, for_workers), {"num_cpus": 1, "num_gpus": 1}
    return for_workers, {"num_cpus": 1}


class _Worker:
    """What Ray makes once in each process of the pool."""

    def __init__(self, begin: Callable[[], Work]) -> None:
        self._failed: PseudoqueryError | None = None
        try:
            self._work = begin()
        except PseudoqueryError as error:
            self._failed = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        return _batch(self._answer(batch))

    def _answer(self, batch: dict[str, Any]) -> dict[str, Any]:
        if batch["error"][0]:
            return {name: values[0] for name, values in batch.items()}
        if self._failed is not None:
            return _failure(self._failed)
        try:
            return _row(self._work(_message(batch)))
        except PseudoqueryError as error:
            return _failure(error)


def _reader(read: Read) -> Callable[[dict[str, Any]], Iterator[dict[str, list[Any]]]]:
    def rows(batch: dict[str, Any]) -> Iterator[dict[str, list[Any]]]:
        try:
            for message in read(_message(batch)):
                yield _batch(_row(message))
        except PseudoqueryError as error:
            yield _batch(_failure(error))

    return rows


def _row(message: WorkerMessage) -> dict[str, Any]:
    return {"facts": json.dumps(message[0]), "body": message[1], "error": ""}


def _failure(error: PseudoqueryError) -> dict[str, Any]:
    """Send an error like an answer: what Ray makes of one that is raised, nobody can read."""
    said = json.dumps([type(error).__name__, str(error)])
    return {"facts": "{}", "body": b"", "error": said}


def _message(batch: dict[str, Any]) -> WorkerMessage:
    return json.loads(batch["facts"][0]), bytes(batch["body"][0])


def _batch(row: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in row.items()}


@contextmanager
def _plain_errors(ray: Any) -> Iterator[None]:
    """Put what Ray raises when it has given up into one sentence."""
    try:
        yield
    except PseudoqueryError:
        raise
    except (ray.exceptions.RayError, ConnectionError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        said = (str(cause).strip().splitlines() or [""])[-1].rstrip(".")
        raise ClusterError(
            f"the cluster has given up, after up to {ATTEMPTS} attempts "
            f"({type(cause).__name__}: {said}); see its logs, and run this again: an index goes on "
            "where it stopped."
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Let nobody see what Ray's C++ writes to standard error; what it raises says the same."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _refuse_silent(on: str) -> None:
    """Fail at once if nobody listens: Ray would try for minutes."""
    if on in (LOCAL, "auto"):
        return
    host, _, port = on.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(
            f"--on {on} is no cluster; give local, auto, the HOST:PORT of a head node, "
            "or ray://HOST:PORT."
        )
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(on, error) from error


def _unreachable(on: str, error: Exception) -> ClusterError:
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return ClusterError(
        f"there is no Ray cluster to be reached at {on} ({said}); start one with "
        "`ray start --head`, or give --on local."
    )


def _ray() -> Any:
    """Import Ray, which then tells nobody that it is used, and says in its logs what it does."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # It prints the errors of its machines to standard output, where ours goes.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        return import_module("ray")
    except ImportError as error:
        raise ClusterError("Ray is not installed; run: pip install 'pseudoquery[ray]'") from error
