"""All vectors of a view on a GPU: every document scored in one pass, well enough to prove the best.

What the GPU finds are estimates, off by no more than a bound on the rounding. The documents whose
estimates come that close to the n-th best are scored again in double precision (`score_view`), so
that an answer is the same as without a GPU, to the last bit, and proven in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import VectorView

if TYPE_CHECKING:
    from pseudoquery.search.gpu_search import Documents

PARTS = 8
"""So many times vectors are added to those on the GPU before all are sent there anew."""
SPARE = 2 << 30
"""Bytes of the GPU's memory that are left to the encoder and to what a search needs."""


@dataclass(frozen=True, slots=True)
class GpuScan:
    """A view's vectors: on the GPU if it has room for them all, else sent there for each search."""

    segments: tuple[Segment, ...]
    parts: tuple[Documents, ...]
    widest: int
    """The largest number of vectors that a document has."""
    filled: NDArray[np.bool_] | None
    """(documents,): which have vectors; None if all have."""
    device: torch.device

    def covers(self, view: VectorView) -> bool:
        """Say whether these are this view's vectors."""
        return len(self.segments) == len(view.segments) and self.begins(view)

    def begins(self, view: VectorView) -> bool:
        """Say whether these are the first of this view's vectors."""
        pairs = zip(self.segments, view.segments, strict=False)
        same = all(segment is other for segment, other in pairs)
        return same and len(self.segments) <= len(view.segments)

    def best(
        self,
        queries: NDArray[np.float32],
        settings: Representation,
        count: int,
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Estimate all documents' scores for query vectors (queries, dim); keep the `count` best.

        Returns their positions in the view (queries, count) and the estimates, falling in each row.
        """
        from pseudoquery.search.gpu_search import search

        positions, scores = search(
            self.parts,
            torch.from_numpy(queries).to(self.device),
            count,
            scale=settings.scale,
            score=settings.score,
            allowed=None if allowed is None else torch.from_numpy(allowed),
        )
        return positions.cpu().numpy(), scores.double().cpu().numpy()


def make_gpu_scan(
    view: VectorView, known: GpuScan | None = None, device: str | torch.device = "cuda"
) -> GpuScan | None:
    """Send a view's vectors to the GPU: only the new ones, if a scan of the others is given.

    A document with more vectors than the kernel can score is not for it: then there is none.
    """
    from pseudoquery.search.gpu_search import WIDEST

    counts = np.diff(view.offsets)
    widest = int(counts.max(initial=0))
    if widest > WIDEST:
        return None
    parts = known.parts if known else ()
    new = view.segments[len(known.segments) if known else 0 :]
    filled = counts > 0
    target = torch.device(device)
    return GpuScan(
        view.segments,
        parts + _send([segment for segment in new if len(segment.counts)], target),
        widest,
        None if filled.all() else filled,
        target,
    )


def can_grow(scan: GpuScan, view: VectorView) -> bool:
    """Say whether it is better to add to a scan than to begin anew."""
    return len(scan.parts) < PARTS and scan.begins(view)


def _send(segments: Sequence[Segment], device: torch.device) -> tuple[Documents, ...]:
    """Put segments together on the device; where that has no room, take them as they are."""
    from pseudoquery.search.gpu_search import documents

    for segment in segments:
        segment.check()
    if not segments:
        return ()
    if not _have_room(segments, device):
        return tuple(
            documents(torch.from_numpy(segment.vectors), _offsets([segment]), _scales([segment]))
            for segment in segments
        )
    count = sum(len(segment.vectors) for segment in segments)
    first = torch.from_numpy(segments[0].vectors)
    vectors = torch.empty(count, first.shape[1], dtype=first.dtype, device=device)
    start = 0
    for segment in segments:
        stop = start + len(segment.vectors)
        vectors[start:stop] = torch.from_numpy(segment.vectors)
        start = stop
    scales = _scales(segments)
    return (
        documents(
            vectors,
            _offsets(segments).to(device),
            None if scales is None else scales.to(device),
        ),
    )


def _have_room(segments: Sequence[Segment], device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    torch.cuda.empty_cache()  # what was freed here is not free to the driver
    free, _ = torch.cuda.mem_get_info(device)
    return sum(segment.vectors.nbytes for segment in segments) + SPARE <= free


def _offsets(segments: Sequence[Segment]) -> torch.Tensor:
    counts = np.concatenate([segment.counts for segment in segments])
    return torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _scales(segments: Sequence[Segment]) -> torch.Tensor | None:
    """Put the lengths of the steps of vectors in 8 bits together."""
    scales = [segment.scales for segment in segments if segment.scales is not None]
    return torch.from_numpy(np.concatenate(scales)) if scales else None
