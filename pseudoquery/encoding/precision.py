"""What an encoder computes in, and by which engine: torch, or on a CPU OpenVINO."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

from pseudoquery.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

Precision = Literal["float32", "bfloat16", "openvino-float32", "openvino-bfloat16", "openvino-int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


def in_precision(model: MultiVectorEncoder, precision: str) -> MultiVectorEncoder:
    """Return a model that shares the weights of this one and computes in this precision.

    In bfloat16 the encoder is faster on processors made for it (AVX-512 BF16, AMX) and on GPUs.
    OpenVINO is faster still, on CPUs, whose weights it takes as they are when it is first used.
    Vectors are always made in single precision: half the digits are too few.
    """
    if precision not in PRECISIONS:
        raise ModelError(f"precision is {precision!r}; choose one of {', '.join(PRECISIONS)}.")
    if precision == precision_of(model):
        return model
    if by_openvino(precision):
        _check_openvino(model, precision)
    other = copy.copy(model)
    other.precision = precision  # type: ignore[assignment]
    return other


def available(model: MultiVectorEncoder) -> tuple[str, ...]:
    """List the precisions in which this model can compute here."""
    openvino = model.device.type == "cpu" and find_spec("openvino") is not None
    return tuple(name for name in PRECISIONS if openvino or not by_openvino(name))


def precision_of(model: MultiVectorEncoder) -> str:
    """Say what a model computes in."""
    return str(getattr(model, "precision", "float32"))


def by_openvino(precision: str) -> bool:
    """Say whether OpenVINO computes, not torch."""
    return precision.startswith("openvino-")


def _check_openvino(model: MultiVectorEncoder, precision: str) -> None:
    if find_spec("openvino") is None:
        raise ModelError(
            f"the precision {precision!r} needs OpenVINO, which is not installed; "
            "run: pip install 'pseudoquery[openvino]'"
        )
    if model.device.type != "cpu":
        raise ModelError(
            f"the precision {precision!r} is for CPUs, and this model is on {model.device}; "
            'load it with load_model(name, device="cpu"), or choose float32 or bfloat16.'
        )
