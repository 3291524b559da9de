"""The embedded texts of a batch with their labels, of all processes that share the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pseudoquery.training.distributed import are_connected, gather, gather_padded


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """Embedded queries and documents, ready to be compared."""

    queries: Tensor
    """(queries, query vectors, dim)"""
    queries_mask: Tensor
    documents: Tensor
    """(documents, vectors, dim)"""
    documents_mask: Tensor
    positions: Tensor
    """(documents,): which of all documents of the training each one is"""
    positives: Tensor
    """(queries,): the column of each query's positive among the documents"""
    known: Tensor
    """(queries, most): the positions of all documents that answer each query, padded with -1"""
    teacher: Tensor | None = None
    """(queries, documents): a teacher's scores, minus infinity where it has none"""
    share: float = 1.0
    """The number of queries here, divided by the average number over all processes"""


def assemble_batch(
    queries: tuple[Tensor, Tensor], documents: tuple[Tensor, Tensor], label: Mapping[str, Tensor]
) -> EmbeddedBatch:
    """Put embeddings, masks and labels together; with several processes, the documents of them all.

    The label has the position of each document ("documents"), the column of each query's positive
    ("positives"), the positions of all that answer it ("known"), and perhaps a teacher's scores
    ("teacher").
    """
    values, mask = documents[0], documents[1].bool()
    positions, positives, teacher = label["documents"], label["positives"], label.get("teacher")
    share = 1.0
    if are_connected():
        count = len(values)
        first = torch.distributed.get_rank() * count
        values, mask = gather_padded(values, mask)
        positions = gather(positions)
        if teacher is not None and teacher.shape[1] == count:
            # Scores from a file are those of this process's documents only.
            scores = teacher.new_full((len(teacher), len(positions)), -torch.inf)
            scores[:, first : first + count] = teacher
            teacher = scores
        # The mean over processes is to be the mean over all queries.
        queries_per_process = gather(positives.new_tensor([len(positives)])).float()
        share = float(len(positives) / queries_per_process.mean())
        positives = positives + first
    return EmbeddedBatch(
        queries[0],
        queries[1].bool(),
        values,
        mask.bool(),
        positions,
        positives,
        label["known"],
        teacher,
        share,
    )
