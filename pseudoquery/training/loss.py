"""The training loss: each query should score its positive above all other documents in the batch.

The loss knows the position of each document among all documents of the training, so that one which
appears twice, or another that answers the query too, is never a negative. A teacher's scores can be
learnt from besides. The statistics of the paper's Figure 2 come with the dot products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.losses import (
    CachedMultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.util import cat_padded_token_embeddings
from torch import Tensor, nn

from pseudoquery.encoding.model import representation_of
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import contributions
from pseudoquery.training.distributed import are_connected, gather, gather_padded
from pseudoquery.training.score_pairs import TASKS, score_all
from pseudoquery.training.teacher import Teacher


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


@dataclass(frozen=True, slots=True)
class Distillation:
    """How much a teacher's ranking of the batch counts beside the right answers."""

    weight: float = 0.0
    temperature: float = 1.0
    """The teacher's scores are divided by this: a higher temperature makes them softer."""


def batch_scores(batch: EmbeddedBatch, settings: Representation) -> Tensor:
    """Score all pairs: (queries, documents); a query's other right answers get -infinity."""
    # Mixed precision is for the encoder only: scores need more digits.
    with torch.autocast(batch.queries.device.type, enabled=False):
        scores = score_all(
            (batch.queries, batch.queries_mask), (batch.documents, batch.documents_mask), settings
        )
    right = (batch.positions[None, None, :] == batch.known[:, :, None]).any(dim=1)
    positive = nn.functional.one_hot(batch.positives, scores.shape[1]).bool()
    return scores.masked_fill(right & ~positive, -torch.inf)


def contrastive_loss(scores: Tensor, positives: Tensor) -> Tensor:
    """Return the cross-entropy of each query's positive against all other documents of the batch.

    A positive without vectors, that of an empty text, does not count.
    """
    losses = nn.functional.cross_entropy(scores, positives, reduction="none")
    without_vectors = torch.isneginf(scores.gather(1, positives[:, None]).squeeze(1))
    return losses.masked_fill(without_vectors, 0.0).mean()


def distillation_loss(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the KL divergence of the scores from the teacher's, over the pairs that it scored.

    A query for which the teacher scored fewer than two documents does not count.
    """
    scored = torch.isfinite(scores) & torch.isfinite(teacher)
    counted = scored.sum(dim=1) > 1
    target = (teacher / temperature).masked_fill(~scored, -torch.inf)[counted].log_softmax(dim=1)
    actual = scores.masked_fill(~scored, -torch.inf)[counted].log_softmax(dim=1)
    difference = (target - actual).masked_fill(~scored[counted], 0.0)
    return (target.exp() * difference).sum() / max(len(scores), 1)


def total_loss(
    batch: EmbeddedBatch, settings: Representation, distillation: Distillation
) -> Tensor:
    """Add the loss of the right answers and, weighted, that of the teacher."""
    scores = batch_scores(batch, settings)
    loss = contrastive_loss(scores, batch.positives)
    if batch.teacher is not None and distillation.weight:
        divergence = distillation_loss(scores, batch.teacher, distillation.temperature)
        loss = loss + distillation.weight * divergence
    return batch.share * loss


def contribution_statistics(batch: EmbeddedBatch, settings: Representation) -> dict[str, Tensor]:
    """Average over the positives: the largest r(c_j), and its variance (the paper's Figure 2)."""
    mask = batch.documents_mask[batch.positives]
    queries, vectors = batch.queries[:, 0].detach(), batch.documents.detach()[batch.positives]
    dots = settings.scale * torch.einsum("qd,qkd->qk", queries, vectors)
    values = contributions(dots.float().masked_fill(~mask, -torch.inf))
    counts = mask.sum(dim=1).clamp(min=1)
    mean = values.sum(dim=1) / counts
    variance = ((values - mean[:, None]).square() * mask).sum(dim=1) / counts
    return {"max_r": values.amax(dim=1).mean(), "var_r": variance.mean()}


NO_DISTILLATION = Distillation()
MANY = 1 << 30


class RankingLoss(nn.Module):
    """The loss as sentence-transformers' trainer calls it."""

    def __init__(
        self,
        model: MultiVectorEncoder,
        distillation: Distillation = NO_DISTILLATION,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.settings = representation_of(model)
        self.distillation = distillation
        self.teacher = teacher
        self.statistics: dict[str, Tensor] = {}

    def forward(
        self, sentence_features: Iterable[dict[str, Any]], labels: Mapping[str, Tensor]
    ) -> Tensor:
        """Embed the queries and the documents, and compare them all."""
        features = list(sentence_features)
        queries, documents = (
            self.model(dict(texts), task=task) for texts, task in zip(features, TASKS, strict=True)
        )
        if self.teacher:
            labels = {**labels, "teacher": self.teacher.scores(features, MANY)}
        batch = assemble_batch(
            (queries["token_embeddings"], queries["attention_mask"].bool()),
            (documents["token_embeddings"], documents["attention_mask"].bool()),
            labels,
        )
        self.statistics = contribution_statistics(batch, self.settings)
        return total_loss(batch, self.settings, self.distillation)


class CachedRankingLoss(CachedMultiVectorMultipleNegativesRankingLoss):
    """The same loss with gradient caching: batches of any size in the memory of a small one."""

    def __init__(
        self,
        model: MultiVectorEncoder,
        mini_batch_size: int,
        distillation: Distillation = NO_DISTILLATION,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(model, mini_batch_size=mini_batch_size)
        self.settings = representation_of(model)
        self.distillation = distillation
        self.teacher = teacher
        self.statistics: dict[str, Tensor] = {}
        self._labels: Mapping[str, Tensor] = {}

    def forward(  # type: ignore[override]
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Mapping[str, Tensor]
    ) -> Tensor:
        """Store the labels for `calculate_loss`, which gradient caching calls."""
        features = list(sentence_features)
        if self.teacher:
            scores = self.teacher.scores(features, self.mini_batch_size)
            labels = {**labels, "teacher": scores}
        self._labels = labels
        return super().forward(features, None)

    def calculate_loss(
        self,
        reps: list[list[Tensor]],
        masks_chunks: list[list[Tensor]],
        *,
        with_backward: bool = False,
    ) -> Tensor:
        """Compare all queries with all documents, from cached embeddings."""
        queries, documents = (
            cat_padded_token_embeddings(chunks, masks)
            for chunks, masks in zip(reps, masks_chunks, strict=True)
        )
        batch = assemble_batch(queries, documents, self._labels)
        self.statistics = contribution_statistics(batch, self.settings)
        loss = total_loss(batch, self.settings, self.distillation)
        if with_backward:
            torch.autograd.backward(loss)
            loss = loss.detach()
        return loss


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
