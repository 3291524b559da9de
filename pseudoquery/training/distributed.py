"""Several processes that train together, as torchrun starts them, on one machine or on several: who
writes, who waits, how tensors of all of them come together, and what happens when one is lost.
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
    """Say whether this process is the one, of all machines, that writes and speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def process_count() -> int:
    """How many processes were started together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def are_connected() -> bool:
    """Say whether the processes can exchange tensors by now."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def wait_for_all() -> None:
    """Return when every process has come here."""
    if are_connected():
        with explain_lost_process():
            torch.distributed.barrier()


def broadcast_from_first(said: Broadcast) -> Broadcast:
    """Take what the first process says; machines may see a shared folder at different times."""
    if not are_connected():
        return said
    told = [said]
    torch.distributed.broadcast_object_list(told)
    return told[0]


@contextmanager
def fail_together() -> Iterator[None]:
    """Let what fails in one process fail in all: none waits for one that has given up."""
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    told: list[str | None] = [None] * process_count()
    if are_connected():
        torch.distributed.all_gather_object(told, str(own) if own else None)
    if own:
        raise own
    for said in filter(None, told):
        raise ModelError(f"another process of this training has given up: {said}")


@contextmanager
def explain_lost_process() -> Iterator[None]:
    """Turn the loss of another process into one sentence that says what to do."""
    try:
        yield
    except RuntimeError as error:
        # Gloo has no kind of error of its own.
        if isinstance(error, torch.distributed.DistError) or "gloo" in str(error):
            raise ModelError(
                "another process of this training has ended; see what it said, and start all of "
                "them again: they go on from the last whole checkpoint."
            ) from error
        raise


def gather(own: Tensor) -> Tensor:
    """Put the tensors of all processes, of one shape, side by side in the order of the processes.

    The gradient of each is what all processes make of it.
    """
    return cast(Tensor, _Gather.apply(own)) if are_connected() else own  # type: ignore[no-untyped-call]


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
    """torch's own gathering mixes up gradients that are not contiguous, on a CPU."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        ctx.first = torch.distributed.get_rank() * len(own)
        ctx.count = len(own)
        own = own.contiguous()
        parts = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, own)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        whole = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(whole)
        return whole[ctx.first : ctx.first + ctx.count]
