"""Ask one committed state of an index: by meaning, by words, or both; documents by number out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.method.representation import Representation
from pseudoquery.search.fusion import FUSION_DEPTH, FUSIONS, Fusion, fuse, match_expression
from pseudoquery.storage.filters import Where
from pseudoquery.storage.store import Snapshot

if TYPE_CHECKING:
    from pseudoquery.search.structures import Structures

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search is carried out; the defaults suit most users."""

    structure: str = "auto"
    """The first step: flat, flat8, hnsw, hnsw8, ivf, ivf8; or auto: a GPU, or chosen by size."""
    recall: int = 200
    """How many documents the first step recalls, at least (R of the paper)."""
    recall_vectors: int | None = None
    """Recall a number of vectors instead, such as the paper's 1000*k."""
    fusion: Fusion = "weighted"
    weight: float = 0.5
    """The dense ranking's part in a weighted fusion."""
    fusion_depth: int = FUSION_DEPTH
    """How many documents of each ranking are fused."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The best documents for one query, by their number in the store, best first."""

    numbers: tuple[int, ...]
    scores: tuple[float, ...]
    certified: bool
    candidates: int


def check_search(queries: Sequence[str], top: int, mode: str, settings: SearchSettings) -> None:
    """Refuse what can't be answered, in one sentence."""
    for query in queries:
        check_query(query)
    if not isinstance(top, int) or top < 1:
        raise QueryError(f"top is {top!r}; it must be an integer of at least 1.")
    if mode not in MODES:
        raise QueryError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    if settings.fusion not in FUSIONS:
        raise QueryError(
            f"there is no fusion {settings.fusion!r}; choose one of {', '.join(FUSIONS)}."
        )
    if not 0 <= settings.weight <= 1:
        raise QueryError(f"weight is {settings.weight!r}; it must be between 0 and 1.")
    for name in ("recall", "recall_vectors", "fusion_depth"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise QueryError(f"{name} is {value!r}; it must be at least 1.")


def check_query(query: str) -> None:
    """Refuse a query that asks nothing."""
    if not isinstance(query, str):
        raise QueryError(f"a query must be text, not {type(query).__name__}.")
    if not query.strip().strip("\0"):
        raise QueryError("the query is empty; ask at least one word.")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise QueryError("the query is not valid Unicode (it has a lone surrogate).") from None


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions to one snapshot, and how to answer them."""

    snapshot: Snapshot
    queries: Sequence[str]
    top: int
    where: Where | None
    exact: bool
    settings: SearchSettings


def by_words(asked: Asked) -> list[Ranked]:
    """Rank by BM25."""
    return [_words(asked, query, asked.top) for query in asked.queries]


def by_vectors(
    asked: Asked,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
    top: int | None = None,
) -> list[Ranked]:
    """Rank by the score of the pseudo queries, `top` documents unless `asked` says how many."""
    from pseudoquery.search.structures import chosen_kind
    from pseudoquery.search.two_step import Depth, search

    view, settings = asked.snapshot.view, asked.settings
    if not view.vector_count:
        return [Ranked((), (), certified=True, candidates=0) for _ in asked.queries]
    allowed = None
    if asked.where:
        allowed = np.zeros(len(view.ordinals), dtype=bool)
        matching = asked.snapshot.matching(asked.where)
        allowed[np.searchsorted(view.ordinals, matching)] = True
    kind = chosen_kind(settings.structure, view)
    if asked.exact and kind != "flat" and settings.recall_vectors is None:
        kind = "flat8"  # a scan proves in one pass what no approximate structure can
    scanned = None
    if settings.structure == "auto" and settings.recall_vectors is None:
        # A GPU scores all documents, of queries that are one vector, in no time.
        scanned = structures.on_gpu(view) if all(len(own) == 1 for own in vectors) else None
    rankings = search(
        view,
        scanned or structures.get(kind, view),
        vectors,
        representation,
        top or asked.top,
        depth=Depth(settings.recall, settings.recall_vectors),
        allowed=allowed,
        exact=asked.exact,
    )
    return [
        Ranked(
            tuple(view.ordinals[ranking.documents].tolist()),
            tuple(ranking.scores.tolist()),
            ranking.certified,
            ranking.candidates,
        )
        for ranking in rankings
    ]


def by_both(
    asked: Asked,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
) -> list[Ranked]:
    """Fuse the two rankings; the fusion is of exact rankings if the dense ones are certified."""
    depth = max(asked.settings.fusion_depth, asked.top)
    dense = by_vectors(asked, vectors, structures, representation, depth)
    return [
        _fused(ranked, _words(asked, query, depth), asked)
        for query, ranked in zip(asked.queries, dense, strict=True)
    ]


def _words(asked: Asked, query: str, top: int) -> Ranked:
    match = match_expression(query)
    found = asked.snapshot.fulltext(match, asked.where, top) if match else []
    numbers, scores = tuple(zip(*found, strict=True)) or ((), ())
    return Ranked(numbers, scores, certified=True, candidates=len(found))


def _fused(dense: Ranked, words: Ranked, asked: Asked) -> Ranked:
    dense_scored, words_scored = (
        list(zip(one.numbers, one.scores, strict=True)) for one in (dense, words)
    )
    settings = asked.settings
    fused = fuse(dense_scored, words_scored, settings.fusion, settings.weight)[: asked.top]
    return Ranked(
        tuple(number for number, _ in fused),
        tuple(score for _, score in fused),
        dense.certified,
        dense.candidates,
    )
