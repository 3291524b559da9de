"""How a search is carried out, and what can't be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pseudoquery.errors import QueryError
from pseudoquery.search.fusion import FUSION_DEPTH, FUSIONS, Fusion

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[str, ...] = get_args(Mode)
MOST = 2**31 - 1
"""How many documents or vectors can be asked for, at most."""
RankBy = Literal["auto", "tokens", "vectors"]
RANK_BY: tuple[str, ...] = get_args(RankBy)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search is carried out. The defaults suit most indexes.

    Examples:
        >>> SearchSettings(weight=0.8).weight
        0.8
    """

    structure: str = "auto"
    """What the question is compared with first: "flat8", "flat", "hnsw", "hnsw8", "ivf", "ivf8",
    or "auto" to choose by the number of vectors, and to use a GPU if there is one."""
    recall: int = 200
    """How many documents the first step recalls, at least; the paper's R. The scan in 8 bits
    needs none."""
    recall_vectors: int | None = None
    """Recall this many vectors instead of documents, as the paper does: 1000*k."""
    rank_by: RankBy = "auto"
    """What the best documents are ranked by: "tokens" for late interaction with the stored codes of
    their tokens, "vectors" for the score of their pseudo queries, or "auto" for tokens if the index
    stores them."""
    token_depth: int = 100
    """How many of the best documents by vectors are ranked by tokens, at least. `exact` ranks all
    documents by tokens."""
    vector_share: float = 0.2
    """How much the score of the vectors counts where documents are ranked by tokens, 0 to 1."""
    fusion: Fusion = "weighted"
    """How a hybrid search joins its two rankings: "weighted" adds scores that are scaled to
    0..1, "rrf" adds reciprocal ranks."""
    weight: float = 0.9
    """The part of the dense ranking in a weighted fusion, 0 to 1."""
    fusion_depth: int = FUSION_DEPTH
    """How many documents of each ranking are fused."""
    min_relevance: float | None = None
    """Leave out hits whose relevance is below this, 0 to 1."""


def check_search(queries: Sequence[str], top: int, mode: str, settings: SearchSettings) -> None:
    """Refuse what can't be answered, in one sentence."""
    for query in queries:
        check_query(query)
    _check_count("top", top)
    if mode not in MODES:
        raise QueryError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    if settings.rank_by not in RANK_BY:
        raise QueryError(f"rank_by is {settings.rank_by!r}; choose one of {', '.join(RANK_BY)}.")
    if settings.fusion not in FUSIONS:
        raise QueryError(
            f"there is no fusion {settings.fusion!r}; choose one of {', '.join(FUSIONS)}."
        )
    for name in ("weight", "vector_share", "min_relevance"):
        share = getattr(settings, name)
        if share is not None and not 0 <= share <= 1:
            raise QueryError(f"{name} is {share!r}; it must be between 0 and 1.")
    for name in ("recall", "recall_vectors", "token_depth", "fusion_depth"):
        if getattr(settings, name) is not None:
            _check_count(name, getattr(settings, name))


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise QueryError(f"{name} is {value!r}; it must be an integer of at least 1.")
    if value > MOST:
        raise QueryError(f"{name} is {value}; it must be at most {MOST}.")


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
