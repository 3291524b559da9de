"""The compiled extension; it is missing where nothing could be compiled."""

from typing import Any

from numpy.typing import NDArray

INTERFACE: int

def estimate(
    kernel: str,
    dim: int,
    softmax: bool,
    queries: NDArray[Any],
    query_scales: NDArray[Any],
    codes: NDArray[Any],
    code_scales: NDArray[Any],
    starts: NDArray[Any],
    counts: NDArray[Any],
    positions: NDArray[Any],
    estimates: NDArray[Any],
    /,
) -> None: ...
def names() -> list[str]: ...
def max_dots(
    kernel: str,
    dim: int,
    question: NDArray[Any],
    codes: NDArray[Any],
    starts: NDArray[Any],
    counts: NDArray[Any],
    best: NDArray[Any],
    /,
) -> None: ...
