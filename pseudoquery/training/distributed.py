"""Several processes that train together, on one machine or several, as torchrun starts them.

The first process writes and the others wait for it; tensors of all processes are gathered; and the
loss of one process ends them all with a clear message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from pseudoquery.errors import ModelError

Broadcast = TypeVar("Broadcast")


def is_first() -> bool:
    """Say whether this is the process that writes files and messages, of those on all machines."""
    return int(os.environ.get("RANK", "0")) == 0


def process_count() -> int:
    """Return how many processes train together, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def are_connected() -> bool:
    """Say whether the processes can exchange tensors by now."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def wait_for_all() -> None:
    """Return when every process has called this."""
    if are_connected():
        with explain_lost_process():
            torch.distributed.barrier()


def broadcast_from_first(value: Broadcast) -> Broadcast:
    """Return the first process's value; machines may see a shared folder at different times."""
    if not are_connected():
        return value
    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


@contextmanager
def fail_together() -> Iterator[None]:
    """Raise an error in all processes if one fails, so that none waits for it in vain."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    messages: list[str | None] = [None] * process_count()
    if are_connected():
        torch.distributed.all_gather_object(messages, str(failure) if failure else None)
    if failure:
        raise failure
    for message in filter(None, messages):
        raise ModelError(f"another process of this training has given up: {message}")


@contextmanager
def explain_lost_process() -> Iterator[None]:
    """Turn the loss of another process into one sentence that says what to do."""
    try:
        yield
    except RuntimeError as error:
        # Gloo raises plain RuntimeErrors.
        if isinstance(error, torch.distributed.DistError) or "gloo" in str(error):
            raise ModelError(
                "another process of this training has ended; read its messages, then start all "
                "processes again: they go on from the last whole checkpoint."
            ) from error
        raise


def gather(values: Tensor) -> Tensor:
    """Concatenate the tensors of all processes, which have one shape, in the processes' order.

    The gradient of each tensor is the sum of what all processes compute for it.
    """
    if not are_connected():
        return values
    return cast(Tensor, _Gather.apply(values))  # type: ignore[no-untyped-call]


def gather_padded(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Gather vectors (texts, vectors, dim) and their mask, whose widths differ."""
    if not are_connected():
        return values, mask
    widest = torch.tensor(values.shape[1], device=values.device)
    torch.distributed.all_reduce(widest, torch.distributed.ReduceOp.MAX)
    missing = int(widest) - values.shape[1]
    return (
        gather(pad(values, (0, 0, 0, missing))),
        gather(pad(mask.to(torch.uint8), (0, missing))).bool(),
    )


class _Gather(torch.autograd.Function):
    """Gathers with gradients: on a CPU, torch mixes up gradients that are not contiguous."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.first = torch.distributed.get_rank() * len(values)
        ctx.count = len(values)
        values = values.contiguous()
        parts = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, values)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        whole = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(whole)
        return whole[ctx.first : ctx.first + ctx.count]
