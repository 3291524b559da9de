"""Where kernels are tested: on a GPU or, without one, in Triton's interpreter.

Triton decides when it is imported whether it interprets, so that `TRITON_INTERPRET=1` has to be set
before: `make test` runs these tests once more with it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"

if find_spec("triton") is None or not (DEVICE == "cuda" or INTERPRETED):
    pytest.skip("needs Triton, and a GPU or TRITON_INTERPRET=1", allow_module_level=True)
