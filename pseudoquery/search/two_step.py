"""Two-step search over a view: a structure recalls candidates, they are scored exactly and proven.

When the first step compares with every vector, its answers are mostly proven at once. When they are
not, `exact` asks for one pass over all vectors: it scores every document whose largest dot product
reaches the n-th best score so far, which is always enough. A scan in 8 bits, or on a GPU, needs no
second pass: it recalls few documents, and always proves the answer.

Exact scores are computed in double precision, row by row, so that a document's score does not
depend on the other candidates; ties go to the document that was added first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.exact_scores import Positions
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.first_steps import (
    EstimatesByGpu,
    EstimatesByInt8,
    EveryDocument,
    OwnersOfNearestVectors,
)
from pseudoquery.search.gpu_scan import GpuScan
from pseudoquery.search.int8_scan import Int8Scan
from pseudoquery.search.prove import FirstStep, Queries, RankedDocuments, rank_and_prove
from pseudoquery.search.score_view import ViewScorer
from pseudoquery.storage.vector_view import VectorView

Ranking = RankedDocuments[Positions]
"""The best documents for one query, by their positions in the view."""


@dataclass(frozen=True, slots=True)
class RecallDepth:
    """How far the first step goes before documents are scored exactly."""

    documents: int = 200
    """R of the paper's Section 3.3: how many documents are recalled, at least."""
    vectors: int | None = None
    """Recall by a number of vectors instead, as the authors' program does; the paper's 1000*k."""


def search(
    view: VectorView,
    structure: FaissIndex | Int8Scan | GpuScan | None,
    queries: Queries,
    settings: Representation,
    top: int,
    *,
    depth: RecallDepth | None = None,
    allowed: NDArray[np.bool_] | None = None,
    exact: bool = False,
) -> list[Ranking]:
    """Rank the allowed documents (a mask over the view's; by default the live ones) by score.

    Without a structure, all of them are scored.
    """
    allowed = view.live if allowed is None else allowed & view.live
    depth = depth or RecallDepth()
    first: FirstStep[Positions]
    if structure is None:
        first = EveryDocument(np.flatnonzero(allowed & (np.diff(view.offsets) > 0)))
    elif isinstance(structure, GpuScan):
        first, exact = EstimatesByGpu(view, structure, settings, top, allowed), True
    elif isinstance(structure, Int8Scan) and depth.vectors is None:
        first, exact = EstimatesByInt8(view, structure, settings, top, allowed), True
    else:
        chosen = view.alive if allowed is view.live else view.chosen(allowed)
        wanted = 0 if depth.vectors else min(max(depth.documents, top), chosen.documents)
        first = OwnersOfNearestVectors(
            view, structure, settings, chosen, wanted, depth.vectors or 2 * wanted
        )
    second = ViewScorer(view, settings, top, allowed)
    return rank_and_prove(first, second, queries, top, exact=exact)
