"""Learn what the scores of a model mean, from questions whose answers are known.

The constants of a `Calibration` are those under which the known answers are most likely. Each
collection counts alike. Questions of the other collections are asked, too: hardly any of a corpus's
documents answers them, so they teach what a score is worth where nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.errors import QueryError
from pseudoquery.evaluation.evaluate import SearchPlan, search_all
from pseudoquery.index import Index
from pseudoquery.records import Query
from pseudoquery.search.relevance import RIVALS, Calibration
from pseudoquery.search.settings import SearchSettings

FOREIGN = 300
"""Questions of other collections that each index is asked, at most."""
FOREIGN_SHARE = 0.2
"""How often a question is taken to have no answer: in one case of five."""


@dataclass(frozen=True, slots=True)
class JudgedHits:
    """The best hits of questions, and which of them answer their question."""

    scores: NDArray[np.float64]
    """(questions, hits): best first; minus infinity where there are no more hits."""
    relevant: NDArray[np.bool_]
    """(questions, hits)"""


@dataclass(frozen=True, slots=True)
class JudgedCollection:
    """What an index finds for the questions of its own collection, and for those of others."""

    own: JudgedHits
    foreign: JudgedHits


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the relevances of one collection can be trusted; the others have set the constants.

    All figures but the first are of the best hits alone.
    """

    hits_error: float
    """The mean squared difference between a hit's relevance and what is true, 1 or 0."""
    predicted: float
    """The mean relevance."""
    relevant: float
    """How many do answer their question."""
    foreign: float
    """The mean relevance for questions of other collections."""


def judge_collections(
    indexes: Sequence[tuple[Index, Dataset]], on_progress: Callable[[int], None]
) -> dict[str, JudgedCollection]:
    """Ask each index the questions of its collection, and some of the others'.

    `on_progress` is called with the number of questions of each batch.
    """
    judged = {}
    for index, dataset in indexes:
        others = [other for _, other in indexes if other is not dataset]
        judged[dataset.name] = JudgedCollection(
            judge_hits(index, dataset, on_progress),
            judge_hits(index, foreign_questions(others), on_progress),
        )
    return judged


def foreign_questions(others: Sequence[Dataset]) -> Dataset:
    """Draw questions from collections, from each as many as from the others."""
    share = -(-FOREIGN // max(len(others), 1))
    queries = []
    for other in others:
        chosen = np.random.default_rng(0).permutation(len(other.queries))[:share]
        queries += [Query(f"{other.name} {row}", other.queries[row].text) for row in chosen]
    return Dataset("foreign", "", lambda: iter(()), tuple(queries), ())


def judge_hits(index: Index, dataset: Dataset, on_progress: Callable[[int], None]) -> JudgedHits:
    """Search an index by tokens, and look up which hits are relevant."""
    plan = SearchPlan(RIVALS, settings=SearchSettings(rank_by="tokens"))
    run = search_all(index, dataset, plan, on_progress)
    known = {(qrel.query_id, qrel.document_id) for qrel in dataset.qrels if qrel.relevance > 0}
    scores = np.full((len(run), RIVALS), -np.inf)
    relevant = np.zeros((len(run), RIVALS), dtype=bool)
    for row, (query, hits) in enumerate(run.items()):
        scores[row, : len(hits)] = [score for _, score in hits]
        relevant[row, : len(hits)] = [(query, document) in known for document, _ in hits]
    return JudgedHits(scores, relevant)


def fit_constants(collections: Sequence[JudgedCollection]) -> tuple[float, float]:
    """Find the steepness and the threshold under which what is known is most likely."""
    best = np.concatenate([collection.own.scores[:, 0] for collection in collections])
    best = best[np.isfinite(best)]
    if not len(best):
        raise QueryError("no question finds anything; give an index of the collection's documents.")

    def surprise(logarithm_and_threshold: NDArray[np.float64]) -> float:
        logarithm, threshold = logarithm_and_threshold
        return float(
            np.mean([_surprise(each, np.exp(logarithm), threshold) for each in collections])
        )

    start = [np.log(1 / max(float(best.std()), 1e-3)), float(best.mean())]
    found = minimize(surprise, start, method="Nelder-Mead")
    return float(np.exp(found.x[0])), float(found.x[1])


def check_reliability(collections: Mapping[str, JudgedCollection]) -> dict[str, Reliability]:
    """Judge each collection by the constants that the others set; alone, by its own."""
    checked = {}
    for name, collection in collections.items():
        others = [other for each, other in collections.items() if each != name]
        constants = Calibration("", "signs", 0.0, *fit_constants(others or [collection]))
        own = np.array([constants.relevances(row) for row in collection.own.scores])
        foreign = [constants.relevances(row)[0] for row in collection.foreign.scores]
        checked[name] = Reliability(
            float(((own - collection.own.relevant) ** 2).mean()),
            float(own[:, 0].mean()),
            float(collection.own.relevant[:, 0].mean()),
            float(np.mean(foreign)) if foreign else 0.0,
        )
    return checked


def _surprise(collection: JudgedCollection, steepness: float, threshold: float) -> float:
    """Return the mean negative log likelihood of what is known of a collection."""
    own = _negative_logs(collection.own, steepness, threshold).mean()
    if not len(collection.foreign.scores):
        return float(own)
    foreign = _negative_logs(collection.foreign, steepness, threshold).mean()
    return float((1 - FOREIGN_SHARE) * own + FOREIGN_SHARE * foreign)


def _negative_logs(hits: JudgedHits, steepness: float, threshold: float) -> NDArray[np.float64]:
    """(questions,): of the chance that one of the relevant hits answers, or else none of all."""
    weights = steepness * (hits.scores - threshold)
    total = np.logaddexp(0, np.logaddexp.reduce(weights, axis=1))
    answers = np.logaddexp.reduce(np.where(hits.relevant, weights, -np.inf), axis=1)
    answered = hits.relevant.any(axis=1)
    logs: NDArray[np.float64] = np.where(answered, total - answers, total)
    return logs
