"""How texts become vectors: the settings of the paper's method and of its rivals.

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
MOST_VECTORS, MOST_ITERATIONS = 4096, 10_000
"""Of k and iterations: K-means compares all its clusters with each other."""
MOST_LOCAL = 100
"""Of locality: long before, clusters are stretches of equal length."""
SEEDINGS: tuple[str, ...] = get_args(Seeding)


@dataclass(frozen=True, slots=True)
class Representation:
    """How texts become vectors, and how vectors are compared.

    Start from a preset and change what you like, see `preset`; or from a trained model's settings,
    see `representation_for`.
    """

    documents: DocumentVectors = "pseudo-queries"
    """Which vectors stand for a document: "pseudo-queries" (K-means centroids), "cls" (DPR),
    "mean" (RepBERT), "first" (the first k tokens, ME-BERT), "learnt" (k attention codes,
    Poly-Encoder), "random" (k tokens), "stretches" (the means of k stretches of equal length)
    or "tokens" (all, late interaction)."""
    query: QueryVectors = "mean"
    """Which vectors stand for a question: "mean", "cls" or all "tokens"."""
    k: int = 16
    """How many vectors a document has, at most."""
    seeding: Seeding = "equal-interval"
    """Where K-means starts: "equal-interval", "random", or "released" as the authors' program
    does."""
    iterations: int = 20
    """How many iterations K-means makes, at most."""
    locality: float = 0.0
    """How much a token's position in the text counts for its cluster. With 0, not at all, as in
    the paper. With 1, 1/k of the text is as far as a token usually is from the mean."""
    special_tokens: bool = False
    """Whether [CLS], [SEP] and the like take part in a document's vectors."""
    mix_mean: float = 0.0
    """How much of the document's mean is added to each vector."""
    append: Appended = "none"
    """One more vector per document: "cls", "mean" or "none"."""
    normalise: bool = True
    """Whether vectors are brought to length 1."""
    scale: float = 20.0
    """What dot products are multiplied by before the softmax; an inverse temperature."""
    score: Score = "softmax"
    """"softmax" for the weighted sum of the paper's equations 4 to 6, "max" for the largest dot
    product (MaxSim)."""

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
        _check_integer("k", self.k, 1, MOST_VECTORS)
        _check_integer("iterations", self.iterations, 0, MOST_ITERATIONS)
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
        """Return all settings as plain JSON values."""
        return asdict(self)


def _check_integer(name: str, value: Any, lowest: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ModelError(f"{name} is {value!r}; it must be an integer of at least {lowest}.")
    if value > most:
        raise ModelError(f"{name} is {value}; it must be at most {most}.")


def _number(value: object) -> bool:
    """Say whether it is a finite number, and no larger than a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
