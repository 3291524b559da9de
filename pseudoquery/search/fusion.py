"""Words and meaning together: two ways to fuse a ranking by BM25 and one by vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

Fusion = Literal["rrf", "weighted"]
FUSIONS: tuple[str, ...] = get_args(Fusion)
RRF_CONSTANT = 60
"""The constant of Cormack, Clarke and Buettcher (2009)."""
FUSION_DEPTH = 100
"""How many of the best of each ranking are fused; more, if more hits are asked for."""
ScoredOrdinals = Sequence[tuple[int, float]]
"""(a document's ordinal, its score), best first."""


def fuse(
    dense: ScoredOrdinals, words: ScoredOrdinals, fusion: Fusion, weight: float
) -> list[tuple[int, float]]:
    """Fuse two rankings; `weight` is the dense one's part in a weighted fusion.

    Among equals, documents of the dense ranking come first, in its order.
    """
    parts = (
        (_reciprocal_ranks(dense), _reciprocal_ranks(words))
        if fusion == "rrf"
        else (_scaled(dense, weight), _scaled(words, 1 - weight))
    )
    total: dict[int, float] = {}
    for part in parts:
        for document, score in part.items():
            total[document] = total.get(document, 0.0) + score
    return sorted(total.items(), key=lambda item: -item[1])


def _reciprocal_ranks(ranking: ScoredOrdinals) -> Mapping[int, float]:
    return {
        document: 1 / (RRF_CONSTANT + rank) for rank, (document, _) in enumerate(ranking, start=1)
    }


def _scaled(ranking: ScoredOrdinals, weight: float) -> Mapping[int, float]:
    """Stretch scores to 0..1 within the ranking, so that the two kinds can be added."""
    scores = [score for _, score in ranking]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if low == high:
        # An only hit is the best one, not the worst: it must count for more than no hit.
        return dict.fromkeys((document for document, _ in ranking), weight)
    return {document: weight * (score - low) / (high - low) for document, score in ranking}
