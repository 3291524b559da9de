"""Whether there is a GPU on which our own kernels run."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch

ASKED = "PSEUDOQUERY_KERNELS"
"""The variable that turns the kernels on. They were rewritten after their last run on a GPU, and
are off until they have run on one again; tests in the interpreter compare them with the CPU's."""
SHARED = 160 << 10
"""Bytes of memory that the kernels share within a multiprocessor: those of an A100, or newer."""


@cache
def runs_kernels(device: torch.device | str = "cuda") -> bool:
    """Say whether they are asked for, this is a large enough NVIDIA GPU, and Triton is there.

    Triton comes with torch's builds for CUDA. Without it, all is done as without a GPU's kernels.
    """
    if os.environ.get(ASKED) != "1":
        return False
    if torch.device(device).type != "cuda" or torch.version.cuda is None:
        return False
    if not torch.cuda.is_available() or find_spec("triton") is None:
        return False
    facts = torch.cuda.get_device_properties(device)
    return bool(getattr(facts, "shared_memory_per_block_optin", 0) >= SHARED)
