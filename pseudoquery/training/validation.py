"""How good a model in training is: every query of a collection asked of every document.

The texts are tokenised once, and the model can sit the same exam many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.evaluation import BaseEvaluator

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.encoding.model import representation_of
from pseudoquery.encoding.token_cache import Windowed, tokenise
from pseudoquery.encoding.windowed_encoder import encode_windowed
from pseudoquery.errors import CorpusError
from pseudoquery.records import Query
from pseudoquery.search.brute_force import rank_all

DEPTH = 1000
HEADLINES = ("RR@10", "nDCG@10")
"""What is logged during a training."""


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """A test collection, ready for any model with the same tokenizer."""

    name: str
    documents: tuple[Windowed, ...]
    queries: tuple[Windowed, ...]
    gains: tuple[dict[int, int], ...]
    """For each query, the relevance of the documents that are relevant, by their places; those
    that are not in the corpus are counted with places of their own below zero."""


def make_validation_set(
    model: MultiVectorEncoder, dataset: Dataset, name: str = "", cache: Path | None = None
) -> ValidationSet:
    """Tokenise a collection's documents, whole, and its judged queries."""
    texts = {document.id: document_text(document)[0] for document in dataset.documents()}
    places = {id_: place for place, id_ in enumerate(texts)}
    gains: dict[str, dict[int, int]] = {qrel.query_id: {} for qrel in dataset.qrels}
    for qrel in dataset.qrels:
        if qrel.relevance > 0:
            place = places.setdefault(qrel.document_id, -1 - len(places))
            gains[qrel.query_id][place] = qrel.relevance
    judged = judged_queries(dataset)
    if not judged:
        raise CorpusError(
            f"{dataset.name}: there are no judgements to evaluate by; `pseudoquery evaluate` can "
            "look for answer strings instead."
        )
    return ValidationSet(
        name or dataset.name,
        tuple(tokenise(model, list(texts.values()), "document", None, cache)),
        tuple(tokenise(model, [query.text for query in judged], "query", None, cache)),
        tuple(gains[query.id] for query in judged),
    )


def judged_queries(dataset: Dataset) -> list[Query]:
    """Return the queries of an exam, in its order."""
    judged = {qrel.query_id for qrel in dataset.qrels}
    return [query for query in dataset.queries if query.id in judged]


def validate(model: MultiVectorEncoder, exam: ValidationSet) -> dict[str, float]:
    """Rank all documents for each query by the model's own score; average the measures."""
    places = rank_queries(model, exam).places
    return {name: float(own.mean()) for name, own in per_query_measures(places, exam.gains).items()}


@dataclass(frozen=True, slots=True)
class Rankings:
    """How a model ranked the documents of an exam for each of its queries."""

    places: NDArray[np.int64]
    """(queries, depth): the places of the best documents"""
    scores: NDArray[np.float32]
    """(queries, depth)"""
    vectors: float
    """How many vectors stood for a document, on average."""


def rank_queries(model: MultiVectorEncoder, exam: ValidationSet) -> Rankings:
    """Rank all documents for each query by the model's own score."""
    documents = encode_windowed(model, exam.documents, "document")
    queries = encode_windowed(model, exam.queries, "query")
    places, scores = rank_all(queries, documents, representation_of(model), DEPTH)
    vectors = sum(int(mask.sum()) for _, mask, _ in documents)
    return Rankings(places, scores, vectors / len(exam.documents))


def per_query_measures(
    places: NDArray[np.int64], gains: Sequence[dict[int, int]]
) -> dict[str, NDArray[np.float64]]:
    """Compute each query's measures as ir-measures does, from where the right documents stand."""
    queries = len(gains)
    first = np.full(queries, np.inf)
    found = np.zeros(queries)
    gained, ideal = np.zeros(queries), np.zeros(queries)
    for query, own in enumerate(gains):
        ranks = {gain_place: np.flatnonzero(places[query] == gain_place) for gain_place in own}
        for place, rank in ranks.items():
            if len(rank):
                first[query] = min(first[query], rank[0])
                found[query] += 1
                gained[query] += own[place] / np.log2(rank[0] + 2) if rank[0] < 10 else 0.0
        best = sorted(own.values(), reverse=True)[:10]
        ideal[query] = sum(gain / np.log2(rank + 2) for rank, gain in enumerate(best))
    total = np.array([max(len(own), 1) for own in gains])
    measures = {f"RR@{depth}": np.where(first < depth, 1 / (first + 1), 0.0) for depth in (10, 100)}
    measures["nDCG@10"] = gained / np.where(ideal > 0, ideal, 1.0)
    measures[f"R@{DEPTH}"] = found / total
    return measures | {f"Success@{depth}": (first < depth) * 1.0 for depth in (1, 5, 20, 100)}


class Validator(BaseEvaluator):
    """Evaluates during a training, as sentence-transformers' trainer asks it to."""

    def __init__(self, exams: Sequence[ValidationSet]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._exams = exams
        self.primary_metric = f"{exams[0].name}_{HEADLINES[0]}" if exams else ""

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Sit all exams; what is returned is logged."""
        return {
            f"{exam.name}_{name}": value
            for exam in self._exams
            for name, value in validate(model, exam).items()
            if name in HEADLINES
        }
