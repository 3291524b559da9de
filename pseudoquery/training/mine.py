"""Hard negatives, mined by BM25 or by the model in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import representation_of
from pseudoquery.encoding.windowed_encoder import encode_windowed
from pseudoquery.search.bm25 import rank_by_words
from pseudoquery.search.brute_force import rank_all
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.examples import TrainingSet, query_key
from pseudoquery.training.negatives import Negatives, select_hard_negatives

MARGIN = 10
"""Positives and documents with the answer fall out, so more are ranked than are kept."""


def mine(model: MultiVectorEncoder, material: TokenisedSets, depth: int) -> Negatives:
    """Rank every lesson's documents by the model's own score; keep the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for own, documents, queries in zip(
        material.lessons, material.documents, material.queries, strict=True
    ):
        places, _ = rank_all(
            encode_windowed(model, queries, "query"),
            encode_windowed(model, documents, "document"),
            representation_of(model),
            2 * depth + MARGIN,
        )
        negatives |= select_from_rankings(own, places.tolist(), depth)
    return negatives


def select_from_rankings(
    own: TrainingSet, places: Iterable[Sequence[int]], depth: int
) -> dict[str, list[str]]:
    """Keep, of the documents ranked for each query by their places, the best wrong ones."""
    return {
        query_key(own, example): select_hard_negatives(
            example, (own.ids[place] for place in best), own.texts, depth
        )
        for example, best in zip(own.examples, places, strict=True)
    }


def mine_by_words(lessons: Iterable[TrainingSet], depth: int) -> Negatives:
    """Rank every lesson's documents by BM25, as the index does; keep the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for own in lessons:
        queries = [example.query for example in own.examples]
        rankings = rank_by_words(own.texts.values(), queries, 2 * depth + MARGIN)
        places = ([place for place, _ in best] for best in rankings)
        negatives |= select_from_rankings(own, places, depth)
    return negatives
