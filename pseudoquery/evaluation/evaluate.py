"""Search an index for all queries of a test collection, and compute how good the rankings are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.errors import QueryError
from pseudoquery.evaluation.measures import (
    ANSWER_DEPTHS,
    MEASURES,
    answer_accuracy,
    measure_per_query,
    measures_within,
)
from pseudoquery.evaluation.trec_runs import Run
from pseudoquery.index import Index
from pseudoquery.records import Added
from pseudoquery.search.bm25 import rank_by_words
from pseudoquery.search.settings import Mode, SearchSettings

QUERIES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How an index is searched for the queries of a collection."""

    top: int = 1000
    """How many documents are ranked for each query."""
    mode: Mode = "dense"
    exact: bool = False
    settings: SearchSettings | None = None


def index_dataset(dataset: Dataset, folder: Path, **settings: Any) -> Iterator[Added]:
    """Make an index of a collection's documents, or finish one, a batch at a time."""
    exists = (folder / "index.sqlite").exists()
    index = Index.open(folder) if exists else Index.create(folder, **settings)
    yield from index.add_in_batches(dataset.documents())


def search_all(
    index: Index, dataset: Dataset, plan: SearchPlan, on_progress: Callable[[int], None]
) -> Run:
    """Search an index for all queries of a collection.

    `on_progress` is called with the number of queries of each batch.
    """
    run: dict[str, list[tuple[str, float]]] = {}
    for start in range(0, len(dataset.queries), QUERIES_AT_ONCE):
        queries = dataset.queries[start : start + QUERIES_AT_ONCE]
        rankings = index.rank_many(
            [query.text for query in queries],
            plan.top,
            mode=plan.mode,
            exact=plan.exact,
            settings=plan.settings,
        )
        run.update(zip((query.id for query in queries), rankings, strict=True))
        on_progress(len(queries))
    return run


def search_by_words(dataset: Dataset, top: int, on_progress: Callable[[int], None]) -> Run:
    """Rank a collection's documents for all its queries by BM25, without an index."""
    texts = {document.id: document_text(document)[0] for document in dataset.documents()}
    ids = list(texts)
    run: dict[str, list[tuple[str, float]]] = {}
    rankings = rank_by_words(texts.values(), [query.text for query in dataset.queries], top)
    for query, ranking in zip(dataset.queries, rankings, strict=True):
        run[query.id] = [(ids[position], score) for position, score in ranking]
        on_progress(1)
    return run


def compute_figures(
    run: Run, dataset: Dataset, measures: Sequence[str] = MEASURES, depth: float = inf
) -> dict[str, dict[str, float]]:
    """Compute each measure for each query, by the judgements and, if there are any, the answers.

    A collection without judgements has no measures by judgements, as they would all be zero. A
    measure that looks deeper than the `depth` of the rankings is left out.
    """
    figures = (
        measure_per_query(run, dataset.qrels, measures_within(measures, depth))
        if dataset.qrels
        else {}
    )
    queries = [query for query in dataset.queries if query.answers]
    if queries:
        deepest = max(ANSWER_DEPTHS)
        ranked = {id_ for query in queries for id_, _ in run.get(query.id, ())[:deepest]}
        texts = {
            document.id: document_text(document)[0]
            for document in dataset.documents()
            if document.id in ranked
        }
        if missing := ranked - texts.keys():
            raise QueryError(
                f"the run ranks documents that {dataset.name} does not have: {len(missing)} in "
                f"all, the first is {min(missing)!r}. Give the run of this collection."
            )
        figures.update(answer_accuracy(run, queries, texts, depth))
    return figures
