"""Several processes that train together, as torchrun starts them: who writes, who waits, and how
tensors of all of them come together.
"""

from __future__ import annotations

import os
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad


def is_first() -> bool:
    """Say whether this process is the one that writes and speaks."""
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
        torch.distributed.barrier()


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
