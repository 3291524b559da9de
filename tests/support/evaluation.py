"""A small test collection, and what `pseudoquery evaluate` says about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pseudoquery.evaluation.trec_runs import Run

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]


TEXTS = [
    " ".join(WORDS[(number * step) % 11] for step in range(1, 9)) + f" {number}"
    for number in range(20)
]


ANSWERS = ["answer@1", "answer@5", "answer@20", "answer@100"]


class Result(NamedTuple):
    """What the command reports, and the run that it saved."""

    report: dict[str, Any]
    run: Run

    @property
    def figures(self) -> dict[str, float]:
        """The mean of each measure."""
        figures: dict[str, float] = self.report["figures"]
        return figures
