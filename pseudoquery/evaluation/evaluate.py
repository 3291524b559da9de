"""Put a test collection to an index: documents in, a run and its figures out."""

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
    """How the questions of a collection are asked."""

    top: int = 1000
    mode: Mode = "dense"
    exact: bool = False
    settings: SearchSettings | None = None


def index_dataset(dataset: Dataset, folder: Path, **settings: Any) -> Iterator[Added]:
    """Make an index of a collection's documents, or finish one, a batch at a time."""
    there = (folder / "index.sqlite").exists()
    index = Index.open(folder) if there else Index.create(folder, **settings)
    yield from index.add_in_batches(dataset.documents())


def search_all(
    index: Index, dataset: Dataset, ask: SearchPlan, on_progress: Callable[[int], None]
) -> Run:
    """Ask every question of a collection."""
    run: dict[str, list[tuple[str, float]]] = {}
    for start in range(0, len(dataset.queries), QUERIES_AT_ONCE):
        queries = dataset.queries[start : start + QUERIES_AT_ONCE]
        rankings = index.rank_many(
            [query.text for query in queries],
            ask.top,
            mode=ask.mode,
            exact=ask.exact,
            settings=ask.settings,
        )
        run.update(zip((query.id for query in queries), rankings, strict=True))
        on_progress(len(queries))
    return run


def search_by_words(dataset: Dataset, top: int, on_progress: Callable[[int], None]) -> Run:
    """Ask every question by BM25 alone, as an index would; none is needed for it."""
    texts = {document.id: document_text(document)[0] for document in dataset.documents()}
    ids = list(texts)
    run: dict[str, list[tuple[str, float]]] = {}
    rankings = rank_by_words(texts.values(), [query.text for query in dataset.queries], top)
    for query, ranking in zip(dataset.queries, rankings, strict=True):
        run[query.id] = [(ids[place], score) for place, score in ranking]
        on_progress(1)
    return run


def compute_figures(
    run: Run, dataset: Dataset, measures: Sequence[str] = MEASURES, depth: float = inf
) -> dict[str, dict[str, float]]:
    """Compute, for each query, the measures by judgement and, where it has answers, by those.

    A collection without judgements has no measures by judgement: they would all be zero. What looks
    deeper than the `depth` to which queries were asked is left out.
    """
    figures = (
        measure_per_query(run, dataset.qrels, measures_within(measures, depth))
        if dataset.qrels
        else {}
    )
    asked = [query for query in dataset.queries if query.answers]
    if asked:
        deepest = max(ANSWER_DEPTHS)
        found = {document for one in asked for document, _ in run.get(one.id, ())[:deepest]}
        texts = {one.id: document_text(one)[0] for one in dataset.documents() if one.id in found}
        if missing := found - texts.keys():
            raise QueryError(
                f"the run has {len(missing)} documents that {dataset.name} has not, the first is "
                f"{min(missing)!r}; the run and the collection do not belong together."
            )
        figures.update(answer_accuracy(run, asked, texts, depth))
    return figures
