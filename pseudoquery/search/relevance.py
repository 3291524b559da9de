"""Relevance: a score as a probability, which means the same for every question.

Either one of the best hits answers the question, or none of them does. Each hit weighs
exp(steepness * (score - threshold)), and "none of them" weighs 1. The relevance of a hit is its
share of the whole. So a hit without rivals has a relevance of one half if its score is the
threshold, and hits that match alike share what there is.

The two constants hold for one model, one kind of codes and one share of the vectors. They were
learnt from questions whose answers are known.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.method.token_codes import TokenType

if TYPE_CHECKING:
    from pseudoquery.search.request import RankRequest
    from pseudoquery.storage.schema import Settings

BUNDLED = Path(__file__).parents[1] / "data" / "relevance.json"
"""The constants of the bundled model."""
FILE_NAME = "relevance.json"
"""Where a model's folder has its constants; the model's fingerprint ignores the file."""
RIVALS = 10
"""How many of the best hits share what there is; with 100 of them, hardly anything changes."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants that make relevances of scores, and what they hold for."""

    fingerprint: str
    """The model, by its hash."""
    tokens: TokenType
    """How the tokens are stored."""
    vector_share: float
    """How much the score of the vectors counts beside that of the tokens."""
    steepness: float
    """How fast relevance grows with the score."""
    threshold: float
    """The score at which a hit without rivals has a relevance of one half."""

    def relevances(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the relevance of each hit of one question; the best score comes first."""
        weights = self.steepness * (scores - self.threshold)
        # All weights are divided by the largest, so that none overflows.
        largest = max(0.0, float(weights.max(initial=0.0)))
        total = np.exp(-largest) + np.exp(weights[:RIVALS] - largest).sum()
        shares: NDArray[np.float64] = np.exp(weights - largest) / total
        return shares

    def write(self, path: Path) -> None:
        """Write the constants into a file."""
        write_atomically(path, json.dumps(asdict(self), indent=2).encode() + b"\n")


def load_calibration(settings: Settings) -> Calibration | None:
    """Find the constants for the model of an index; None if nobody has learnt any."""
    beside = [Path(settings.model) / FILE_NAME] if settings.model else []
    for path in (*beside, BUNDLED):
        try:
            content = path.read_bytes()
        except OSError:
            continue  # the model has no such file, or no folder, or nobody may read it
        calibration = _parse(path, content)
        if calibration.fingerprint == settings.fingerprint:
            return calibration
    return None


def reason_for_none(calibration: Calibration | None, request: RankRequest, tokens: str) -> str:
    """Say why the hits of a search have no relevance; empty if they have.

    `tokens` is the type of the codes that documents are ranked by.
    """
    if request.mode == "bm25":
        return "hits that are ranked by words alone have no relevance; search by meaning"
    if tokens == "none":
        return "hits that are ranked by vectors alone have no relevance; rank by tokens"
    if calibration is None:
        return (
            "nobody has learnt what the scores of this model mean; "
            "run `pseudoquery calibrate` on the index"
        )
    if (tokens, request.settings.vector_share) != (calibration.tokens, calibration.vector_share):
        return (
            f"relevance is known for the tokens {calibration.tokens!r} with a vector_share of "
            f"{calibration.vector_share:g} only; search so"
        )
    return ""


def _parse(path: Path, content: bytes) -> Calibration:
    try:
        calibration = Calibration(**json.loads(content))
        constants = calibration.vector_share, calibration.steepness, calibration.threshold
        if not all(np.isfinite(constants)) or calibration.steepness <= 0:
            raise ValueError("a constant is out of range")
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{path} is damaged ({error}); write it again with `pseudoquery calibrate`, "
            "or remove it."
        ) from error
    return calibration
