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
"""Positives and documents with the answer fall out, so that more are ranked than are needed."""


def mine(model: MultiVectorEncoder, tokenised: TokenisedSets, depth: int) -> Negatives:
    """Rank the documents of each training set by the model's score; return the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for training_set, documents, queries in zip(
        tokenised.training_sets, tokenised.documents, tokenised.queries, strict=True
    ):
        positions, _ = rank_all(
            encode_windowed(model, queries, "query"),
            encode_windowed(model, documents, "document"),
            representation_of(model),
            2 * depth + MARGIN,
        )
        negatives |= select_from_rankings(training_set, positions.tolist(), depth)
    return negatives


def mine_by_words(training_sets: Iterable[TrainingSet], depth: int) -> Negatives:
    """Rank the documents of each training set by BM25; return the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for training_set in training_sets:
        queries = [example.query for example in training_set.examples]
        rankings = rank_by_words(training_set.texts.values(), queries, 2 * depth + MARGIN)
        positions = ([position for position, _ in ranking] for ranking in rankings)
        negatives |= select_from_rankings(training_set, positions, depth)
    return negatives


def select_from_rankings(
    training_set: TrainingSet, rankings: Iterable[Sequence[int]], depth: int
) -> dict[str, list[str]]:
    """Select the best wrong documents for each query, from the positions of the ranked ones."""
    return {
        query_key(training_set, example): select_hard_negatives(
            example, (training_set.ids[position] for position in ranking), training_set.texts, depth
        )
        for example, ranking in zip(training_set.examples, rankings, strict=True)
    }
