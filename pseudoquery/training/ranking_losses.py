"""The losses of a batch: each query should score its positive above all other documents.

The position of each document among all documents of the training is known, so that one which
appears twice, or another that answers the query too, is never a negative. A teacher's scores can be
learnt from besides. The statistics of the paper's Figure 2 come with the dot products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import contributions
from pseudoquery.training.embedded_batch import EmbeddedBatch
from pseudoquery.training.score_pairs import score_all


@dataclass(frozen=True, slots=True)
class Distillation:
    """How much a teacher's ranking of the batch counts beside the right answers."""

    weight: float = 0.0
    temperature: float = 1.0
    """The teacher's scores are divided by this: a higher temperature makes them softer."""


NO_DISTILLATION = Distillation()


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
