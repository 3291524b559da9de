"""PyLate with fast-plaid: all tokens, compressed to a centroid and 4 bits a number, its defaults.

It computes in float16, for which few processors have instructions: without them, torch multiplies
matrices at about a hundredth of the rate of float32, and thousands of documents take hours. So this
peer is asked about fewer.

It is given the same token vectors as the others. Its own encoder would add an untrained projection
to this one; what it does to queries (padding them to 32 tokens) belongs to models trained so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pylate import indexes

from benchmarks.peers.measure import Inputs, Vectors, Way, run, size_of

EFFORTS = (128, 512, 8192)
"""Documents that are scored in full; 8192 is the default."""


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    vectors = inputs.vectors("tokens")
    start = time.perf_counter()
    opened(folder, EFFORTS[0], override=True).add_documents(
        [str(number) for number in range(vectors.count)],
        [np.array(vectors.document(number), np.float32) for number in range(vectors.count)],
    )
    seconds = time.perf_counter() - start
    size = size_of(folder)
    settings = {"nbits": 4, "n_ivf_probe": 8}
    for effort in EFFORTS:
        search = searching(opened(folder, effort), vectors)
        yield Way("PLAID", "tokens", search, seconds, size, effort=effort, settings=settings)


def opened(folder: Path, effort: int, override: bool = False) -> Any:
    return indexes.PLAID(
        str(folder), "peer", override, n_full_scores=effort, show_progress=False, device="cpu"
    )


def searching(index: Any, vectors: Vectors) -> Callable[[int, int], Sequence[int]]:
    def search(query: int, top: int) -> Sequence[int]:
        ranking = index(vectors.query(query)[None], k=top)
        return [int(hit["id"]) for hit in ranking[0]]

    return search


if __name__ == "__main__":
    run("pylate", ["pylate", "fast-plaid", "torch"], ways)
