"""Which kernel computes: the fastest that runs here, or the one that the environment names."""

from __future__ import annotations

import os

from pseudoquery.errors import QueryError

INTERFACE = 2
"""What an extension says that was compiled from the source beside this file."""

COMPILED: tuple[str, ...] = ()
"""The compiled kernels that run here."""
try:
    from pseudoquery.native import kernels
except ImportError:  # nothing was compiled
    pass
else:
    if getattr(kernels, "INTERFACE", 0) == INTERFACE:  # or it was compiled for another version
        COMPILED = tuple(kernels.names())

NUMPY = "numpy"
"""The kernel that needs no compiler."""
VARIABLE = "PSEUDOQUERY_KERNEL"


def available_kernels() -> tuple[str, ...]:
    """Name the kernels that run here, the fastest first."""
    return (*COMPILED, NUMPY)


def chosen_kernel() -> str:
    """Name the kernel in use: the fastest, unless PSEUDOQUERY_KERNEL names another."""
    names = available_kernels()
    name = os.environ.get(VARIABLE) or names[0]
    if name not in names:
        raise QueryError(
            f"{VARIABLE} is {name!r}, and this machine has {', '.join(names)}; name one of these."
        )
    return name
