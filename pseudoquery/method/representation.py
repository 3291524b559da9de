"""How texts become vectors: the settings of the paper's method and of its rivals, and presets.

A representation is saved inside the model, so that an index, a checkpoint and a result always know
exactly how their vectors were made.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from pseudoquery.errors import ModelError

DocumentVectors = Literal[
    "pseudo-queries", "cls", "mean", "first", "learnt", "random", "stretches", "tokens"
]
QueryVectors = Literal["cls", "mean", "tokens"]
Seeding = Literal["equal-interval", "random", "released"]
Appended = Literal["none", "cls", "mean"]
Score = Literal["softmax", "max"]
MOST_LOCAL = 100
"""Of locality: long before, clusters are stretches of equal length."""
SEEDINGS: tuple[str, ...] = get_args(Seeding)


@dataclass(frozen=True, slots=True)
class Representation:
    """Which vectors stand for a document, which for a query, and how they are compared."""

    documents: DocumentVectors = "pseudo-queries"
    """K-means centroids; or CLS (DPR), mean (RepBERT), the first k tokens (ME-BERT), k learnt
    attention codes (Poly-Encoder), k random tokens, the means of k stretches of equal length, or
    all tokens (late interaction)."""
    query: QueryVectors = "mean"
    k: int = 16
    seeding: Seeding = "equal-interval"
    iterations: int = 20
    locality: float = 0.0
    """How much the place of a token in the text counts for its cluster; the paper's K-means knows
    nothing of it. With 1, 1/k of the text is as far as a token usually is from the mean."""
    special_tokens: bool = False
    """Whether [CLS], [SEP] and the like take part in a document's vectors."""
    mix_mean: float = 0.0
    """How much of the document's mean, special tokens included, is added to each vector."""
    append: Appended = "none"
    """One more document vector: the CLS token's or the mean."""
    normalise: bool = True
    scale: float = 20.0
    """The dot products are multiplied by this before the softmax (an inverse temperature)."""
    score: Score = "softmax"
    """Each query vector's softmax-weighted sum (Eq. 4-6), or its largest dot (Eq. 12, MaxSim)."""

    def __post_init__(self) -> None:
        choices = {
            "documents": get_args(DocumentVectors),
            "query": get_args(QueryVectors),
            "seeding": SEEDINGS,
            "append": get_args(Appended),
            "score": get_args(Score),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ModelError(
                    f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}."
                )
        for name, lowest in (("k", 1), ("iterations", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise ModelError(
                    f"{name} is {value!r}; it must be an integer of at least {lowest}."
                )
        numbers = {
            "scale": (_number(self.scale) and self.scale > 0, "above 0"),
            "mix_mean": (_number(self.mix_mean) and self.mix_mean >= 0, "of at least 0"),
            "locality": (
                _number(self.locality) and 0 <= self.locality <= MOST_LOCAL,
                f"from 0 to {MOST_LOCAL}",
            ),
        }
        for name, (fine, meaning) in numbers.items():
            if not fine:
                raise ModelError(
                    f"{name} is {getattr(self, name)!r}; it must be a number {meaning}."
                )
        for name in ("special_tokens", "normalise"):
            if not isinstance(getattr(self, name), bool):
                raise ModelError(f"{name} is {getattr(self, name)!r}; it must be True or False.")
        if self.documents == "tokens" and (self.append != "none" or self.mix_mean):
            raise ModelError("documents='tokens' keeps every token: drop append and mix_mean.")

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return asdict(self)


def _number(value: object) -> bool:
    """Say whether it is a finite number, and no larger than a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
