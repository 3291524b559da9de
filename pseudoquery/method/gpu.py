"""Whether there is a GPU on which our own kernels run."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

SHARED = 160 << 10
"""Bytes that a program's threads have to share: those of an A100, or newer."""


@cache
def runs_kernels(device: torch.device | str = "cuda") -> bool:
    """Say whether this is a large enough NVIDIA GPU, and Triton is there.

    Triton comes with torch's builds for CUDA. Without it, all is done as without a GPU's kernels.
    """
    if torch.device(device).type != "cuda" or torch.version.cuda is None:
        return False
    if not torch.cuda.is_available() or find_spec("triton") is None:
        return False
    return shared_memory(device) >= SHARED


def shared_memory(device: torch.device | str) -> int:
    """Say how many bytes the threads of one program can share; 0 where that is no GPU."""
    if torch.device(device).type != "cuda":
        return 0
    facts = torch.cuda.get_device_properties(device)
    return int(getattr(facts, "shared_memory_per_block_optin", 0))
