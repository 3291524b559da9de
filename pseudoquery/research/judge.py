"""Judge models on whole collections: alone, by the tokens of documents, and together with BM25."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.files import write_atomically
from pseudoquery.research.rows import Use
from pseudoquery.research.schedules import ALL_COLLECTIONS
from pseudoquery.research.token_ranking import (
    TokenScores,
    bytes_per_document,
    rank_again,
    score_tokens,
)
from pseudoquery.search.bm25 import rank_by_words
from pseudoquery.search.fusion import FUSION_DEPTH, Fusion, ScoredOrdinals, fuse
from pseudoquery.training.config import load_named_dataset
from pseudoquery.training.validation import (
    DEPTH,
    Rankings,
    ValidationSet,
    judged_queries,
    make_validation_set,
    per_query_measures,
    rank_queries,
)

NO_DOCUMENT = np.iinfo(np.int64).min
"""The position that fills up a ranking that is too short; no document has it."""
Figures = dict[str, dict[str, float]]
"""For each way to rank, the measures in percent."""


class Judge:
    """Ranks all documents of collections for all their queries, and measures the rankings.

    It keeps tokenised texts and BM25's rankings, which all rows of an experiment share.
    """

    def __init__(self, data: Path, work: Path, model: str, checksums: Mapping[str, str]) -> None:
        self._data = data
        self._work = work
        self._model = model
        self._checksums = checksums
        self._validation_sets: dict[str, ValidationSet] = {}
        self._bm25_rankings: dict[str, list[ScoredOrdinals]] = {}

    def judge_bm25(self, test: str) -> Figures:
        """Judge BM25 alone."""
        return {"alone": _compute_figures(self._rank_by_words(test), self._validation_set(test))}

    def judge(
        self, model: MultiVectorEncoder, test: str, use: Use, tokens: TokenScores | None
    ) -> Figures:
        """Judge a model alone, and together with BM25."""
        validation_set = self._validation_set(test)
        rankings = rank_queries(model, validation_set)
        comparable = FUSION_DEPTH
        if use.tokens != "none" and tokens is not None:
            rankings = rank_again(rankings, tokens.tables[use.tokens], use.candidates)
            # What was not ranked again has scores of another kind.
            comparable = min(FUSION_DEPTH, use.candidates or FUSION_DEPTH)
        measures = per_query_measures(rankings.positions, validation_set.gains)
        figures = {"alone": _average_percent(measures)}
        dense = _list_best(rankings, comparable)
        for fusion in get_args(Fusion):
            pairs = zip(dense, self._rank_by_words(test), strict=True)
            fused = [fuse(ranking, words[:FUSION_DEPTH], fusion, 0.5) for ranking, words in pairs]
            figures[fusion] = _compute_figures(fused, validation_set)
        dimension = pooling_of(model).dimension or 0
        vectors = rankings.vectors if use.candidates or use.tokens == "none" else 0.0
        count = tokens.tokens if tokens else 0.0
        stored = bytes_per_document(vectors, count, dimension, use.tokens)
        return figures | {"size": {"vectors": vectors, "bytes": round(stored)}}

    def score_tokens(self, model: MultiVectorEncoder, test: str) -> TokenScores:
        """Score all documents of a collection by their tokens."""
        return score_tokens(model, self._validation_set(test))

    def _validation_set(self, test: str) -> ValidationSet:
        if test not in self._validation_sets:
            model = load_model(self._model)
            self._validation_sets[test] = make_validation_set(
                model, self._dataset(test), test, self._work / "tokens"
            )
        return self._validation_sets[test]

    def _rank_by_words(self, test: str) -> list[ScoredOrdinals]:
        """Rank by BM25; a file caches the rankings, which take minutes."""
        if test in self._bm25_rankings:
            return self._bm25_rankings[test]
        path = self._work / f"bm25-{test}-{self._checksums[test]}.json"
        if path.exists():
            self._bm25_rankings[test] = json.loads(path.read_text(encoding="utf-8"))
            return self._bm25_rankings[test]
        dataset = self._dataset(test)
        texts = [document_text(document)[0] for document in dataset.documents()]
        queries = [query.text for query in judged_queries(dataset)]
        self._bm25_rankings[test] = list(rank_by_words(texts, queries, DEPTH))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(self._bm25_rankings[test]).encode())
        return self._bm25_rankings[test]

    def _dataset(self, test: str) -> Dataset:
        return load_named_dataset(f"{self._data / test}:{ALL_COLLECTIONS[test]}")


def _list_best(rankings: Rankings, depth: int) -> list[ScoredOrdinals]:
    return [
        list(zip(positions[:depth], scores[:depth], strict=True))
        for positions, scores in zip(
            rankings.positions.tolist(), rankings.scores.tolist(), strict=True
        )
    ]


def _compute_figures(
    rankings: Sequence[ScoredOrdinals], validation_set: ValidationSet
) -> dict[str, float]:
    """Average the measures of rankings that may be of any length."""
    positions = np.full((len(rankings), DEPTH), NO_DOCUMENT)
    for row, ranking in enumerate(rankings):
        best = [position for position, _ in ranking[:DEPTH]]
        positions[row, : len(best)] = best
    return _average_percent(per_query_measures(positions, validation_set.gains))


def _average_percent(measures: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {name: round(100 * float(values.mean()), 2) for name, values in measures.items()}
