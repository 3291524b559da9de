"""Ray: a stream of messages through a pool of workers on many machines.

    connect("auto")       uses the cluster that this machine belongs to
    map_on_workers(...)   takes messages, and yields the workers' answers in any order

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
"""How many workers there are, and the CPUs and GPUs of each."""
Shared = TypeVar("Shared")

LOCAL = "local"
ATTEMPTS = 4
"""How often a worker that dies is started; a document that kills every worker has to end a run."""
READERS = 8
"""One CPU in so many, and at least one, is left for reading."""
PATIENCE = 10
"""Seconds to wait for a cluster to answer."""


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Use a cluster, at the address of its head node: HOST:PORT or ray://HOST:PORT.

    The address "auto" is the cluster that this machine belongs to; "local" starts one here.
    """
    ray = _import_ray()
    _check_reachable(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    local = {"num_cpus": max(2, os.cpu_count() or 1), "include_dashboard": False}
    try:
        with _silence_stderr():
            ray.init(address=address, **quiet, **(local if address == LOCAL else {}))
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise _unreachable_error(address, error) from error
    try:
        yield
    finally:
        ray.shutdown()


def put_shared(value: Shared) -> Callable[[], Shared]:
    """Store a large value once for all workers; they get it by calling what this returns."""
    # Ray sends a class by its name only if the module that the class names is imported. It would
    # send a copy of Pooling otherwise, which the workers don't take for the class itself.
    import_module("pseudoquery.pooling")
    return partial(_get_shared, _import_ray().put(value))


def _get_shared(reference: Any) -> Any:
    return _import_ray().get(reference)


def worker_device() -> str:
    """Name the device of this worker: a GPU if Ray has given it one, as it sees no other."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def map_on_workers(
    messages: Sequence[WorkerMessage], begin: Callable[[], Work], read: Read | None = None
) -> Iterator[WorkerMessage]:
    """Give each message to one of a pool of workers; yield their answers as they come.

    `begin` is called once in each worker's process, which has a GPU to itself if the cluster has
    any, and returns what the worker does with a message. With `read`, other processes first turn
    each message into many.
    """
    ray = _import_ray()
    pool = _choose_pool(ray.cluster_resources())
    with _explain_ray_errors(ray):
        for row in _stream_rows(ray, messages, begin, read, pool):
            if row["error"]:
                kind, message = json.loads(row["error"])
                raise getattr(errors, kind)(message)
            yield json.loads(row["facts"]), row["body"]


def _stream_rows(ray: Any, *job: Any) -> Iterator[dict[str, Any]]:
    """Run Ray Data here or, as it does not run through ray://, in a process of the cluster."""
    if not import_module("ray.util.client").ray.is_connected():
        yield from _run_job(*job)
        return
    stream = ray.remote(num_cpus=0)(_RowStream).remote(*job)
    while (row := ray.get(stream.next_row.remote())) is not None:
        yield row


class _RowStream:
    """The rows of Ray Data, one at a time."""

    def __init__(self, *job: Any) -> None:
        self._rows = _run_job(*job)

    def next_row(self) -> dict[str, Any] | None:
        return next(self._rows, None)


def _run_job(
    messages: Sequence[WorkerMessage], begin: Callable[[], Work], read: Read | None, pool: Pool
) -> Iterator[dict[str, Any]]:
    data = import_module("ray.data")
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Ray warns that from 2.64 on, retries are given by another argument.
    warnings.filterwarnings("ignore", ".*ray_remote_args.* is deprecated")
    size, resources = pool
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # each message travels alone, however small it is
    context.max_consecutive_actor_init_deaths = ATTEMPTS
    if read is None:
        size = min(size, max(1, len(messages)))
    rows = data.from_items(
        list(map(_make_row, messages)), override_num_blocks=max(1, len(messages))
    )
    if read is not None:
        # Readers reserve no CPU, though some are left for them: when machines are lost, restarted
        # workers take every free CPU, and nothing would ever be read again.
        rows = rows.map_batches(
            _make_reader(read),
            batch_size=1,
            num_cpus=0,
            max_retries=ATTEMPTS - 1,
            **_limit_readers(data, max(1, size // READERS)),
        )
    answers = rows.map_batches(
        _Worker,
        fn_constructor_args=(begin,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
        max_restarts=ATTEMPTS - 1,
        # No limit: until a lost machine is declared dead, Ray calls its workers again and again.
        max_task_retries=-1,
        **resources,
    )
    # Not by iter_rows, whose threads read ahead and go on when the caller stops early: a process
    # that then leaves the cluster, with such a thread inside of Ray, crashes.
    for bundle in answers.iter_internal_ref_bundles():
        for block in bundle.block_refs:
            yield from _import_ray().get(block).to_pylist()


def _limit_readers(data: Any, count: int) -> dict[str, Any]:
    """Limit how many processes read at once, by the argument that the installed Ray has for it."""
    if hasattr(data, "TaskPoolStrategy"):
        return {"compute": data.TaskPoolStrategy(size=count)}
    return {"concurrency": count}  # before Ray 2.51


def _choose_pool(resources: dict[str, float]) -> Pool:
    """Choose how many workers there are, and the CPUs and GPUs of each."""
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if cpus < 2:
        raise ClusterError(
            f"the cluster has {cpus} CPU; it needs at least two: one to read, one to encode."
        )
    for_workers = cpus - max(1, cpus // READERS)
    if gpus:
        return min(gpus, for_workers), {"num_cpus": 1, "num_gpus": 1}
    return for_workers, {"num_cpus": 1}


class _Worker:
    """What Ray creates once in each process of the pool."""

    def __init__(self, begin: Callable[[], Work]) -> None:
        self._error: PseudoqueryError | None = None
        try:
            self._work = begin()
        except PseudoqueryError as error:
            self._error = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        return _make_batch(self._answer(batch))

    def _answer(self, batch: dict[str, Any]) -> dict[str, Any]:
        if batch["error"][0]:
            return {name: values[0] for name, values in batch.items()}
        if self._error is not None:
            return _make_error_row(self._error)
        try:
            return _make_row(self._work(_read_message(batch)))
        except PseudoqueryError as error:
            return _make_error_row(error)


def _make_reader(read: Read) -> Callable[[dict[str, Any]], Iterator[dict[str, list[Any]]]]:
    def read_rows(batch: dict[str, Any]) -> Iterator[dict[str, list[Any]]]:
        try:
            for message in read(_read_message(batch)):
                yield _make_batch(_make_row(message))
        except PseudoqueryError as error:
            yield _make_batch(_make_error_row(error))

    return read_rows


def _make_row(message: WorkerMessage) -> dict[str, Any]:
    return {"facts": json.dumps(message[0]), "body": message[1], "error": ""}


def _make_error_row(error: PseudoqueryError) -> dict[str, Any]:
    """Send an error like an answer: Ray would wrap one that is raised in pages of text."""
    described = json.dumps([type(error).__name__, str(error)])
    return {"facts": "{}", "body": b"", "error": described}


def _read_message(batch: dict[str, Any]) -> WorkerMessage:
    return json.loads(batch["facts"][0]), bytes(batch["body"][0])


def _make_batch(row: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in row.items()}


@contextmanager
def _explain_ray_errors(ray: Any) -> Iterator[None]:
    """Turn what Ray raises when it gives up into one sentence."""
    try:
        yield
    except PseudoqueryError:
        raise
    except (ray.exceptions.RayError, ConnectionError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).strip().splitlines() or [""])[-1].rstrip(".")
        raise ClusterError(
            f"the cluster has given up, after up to {ATTEMPTS} attempts "
            f"({type(cause).__name__}: {reason}); read its logs, then run this again: the build of "
            "an index goes on where it stopped."
        ) from error


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Hide what Ray's C++ writes to standard error; the errors that it raises say the same."""
    with open(os.devnull, "wb") as devnull:  # noqa: PTH123
        stderr = os.dup(2)
        os.dup2(devnull.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _check_reachable(address: str) -> None:
    """Fail at once if nobody listens at an address: Ray would try for minutes."""
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(
            f"--on {address} is not a cluster; give local, auto, the HOST:PORT of a head node, "
            "or ray://HOST:PORT."
        )
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable_error(address, error) from error


def _unreachable_error(address: str, error: Exception) -> ClusterError:
    reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return ClusterError(
        f"no Ray cluster answers at {address} ({reason}); start one with `ray start --head`, or "
        "give --on local."
    )


def _import_ray() -> Any:
    """Import Ray, with its usage statistics off and its messages in its log files only."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray prints the errors of its machines to standard output, where our results go.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        return import_module("ray")
    except ImportError as error:
        raise ClusterError("Ray is not installed; run: pip install 'pseudoquery[ray]'") from error
