"""The training loss: each query should score its own document above all others in the batch.

The documents of a batch are known by number, so that one which appears twice, or another that
answers the query too, is never a negative. A teacher's scores can be learnt from besides. The
statistics of the paper's Figure 2 come with the dot products.
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
    numbers: Tensor
    """(documents,): which document of the corpus each one is"""
    positives: Tensor
    """(queries,): where each query's positive stands among the documents"""
    known: Tensor
    """(queries, most): the numbers of all documents that answer each query, else -1"""
    teacher: Tensor | None = None
    """(queries, documents): a teacher's scores, minus infinity where it gave none"""
    share: float = 1.0
    """How many queries there are, over how many each process has on average"""


@dataclass(frozen=True, slots=True)
class Distillation:
    """How much a teacher's ranking of the batch counts beside the right answers."""

    weight: float = 0.0
    temperature: float = 1.0
    """The teacher's scores are divided by this: more makes its opinion softer."""


def batch_scores(batch: EmbeddedBatch, settings: Representation) -> Tensor:
    """Score all pairs: (queries, documents); a query's other right answers get -infinity."""
    # Mixed precision is for the encoder: half of the digits are too few for scores.
    with torch.autocast(batch.queries.device.type, enabled=False):
        scores = score_all(
            (batch.queries, batch.queries_mask), (batch.documents, batch.documents_mask), settings
        )
    right = (batch.numbers[None, None, :] == batch.known[:, :, None]).any(dim=1)
    own = nn.functional.one_hot(batch.positives, scores.shape[1]).bool()
    return scores.masked_fill(right & ~own, -torch.inf)


def contrastive_loss(scores: Tensor, positives: Tensor) -> Tensor:
    """Cross-entropy of each query's positive against all other documents of the batch.

    A positive without vectors, as of an empty text, can't be found and teaches nothing.
    """
    losses = nn.functional.cross_entropy(scores, positives, reduction="none")
    nowhere = torch.isneginf(scores.gather(1, positives[:, None]).squeeze(1))
    return losses.masked_fill(nowhere, 0.0).mean()


def distillation_loss(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL divergence of the scores from the teacher's, over the pairs that the teacher scored.

    A query for which it scored fewer than two documents teaches nothing.
    """
    shared = torch.isfinite(scores) & torch.isfinite(teacher)
    taught = shared.sum(dim=1) > 1
    wanted = (teacher / temperature).masked_fill(~shared, -torch.inf)[taught].log_softmax(dim=1)
    given = scores.masked_fill(~shared, -torch.inf)[taught].log_softmax(dim=1)
    difference = (wanted - given).masked_fill(~shared[taught], 0.0)
    return (wanted.exp() * difference).sum() / max(len(scores), 1)


def total_loss(
    batch: EmbeddedBatch, settings: Representation, distillation: Distillation
) -> Tensor:
    """Add up what is asked for."""
    scores = batch_scores(batch, settings)
    loss = contrastive_loss(scores, batch.positives)
    if batch.teacher is not None and distillation.weight:
        taught = distillation_loss(scores, batch.teacher, distillation.temperature)
        loss = loss + distillation.weight * taught
    return batch.share * loss


def contribution_statistics(batch: EmbeddedBatch, settings: Representation) -> dict[str, Tensor]:
    """Average the largest r(c_j) of each positive document, and their variance."""
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
            self.model(dict(own), task=task) for own, task in zip(features, TASKS, strict=True)
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
        """Keep the label for `calculate_loss`, which the caching calls."""
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
        """Compare all queries with all documents, from embeddings that are cached."""
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
    """Put embeddings and masks together; with several processes, the documents of all of them.

    Of the documents the label says which they are ("documents"), where each query's own stands
    among them ("own"), and which answer it ("known"); perhaps what a teacher says ("teacher").
    """
    values, mask = documents[0], documents[1].bool()
    numbers, positives, teacher = label["documents"], label["own"], label.get("teacher")
    share = 1.0
    if are_connected():
        first, own = torch.distributed.get_rank() * len(values), len(values)
        values, mask = gather_padded(values, mask)
        numbers = gather(numbers)
        if teacher is not None and teacher.shape[1] == own:
            # Scores from a file are of this process's documents only.
            everything = teacher.new_full((len(teacher), len(numbers)), -torch.inf)
            everything[:, first : first + own] = teacher
            teacher = everything
        # The mean over processes is to be the mean over all queries.
        asked = gather(positives.new_tensor([len(positives)])).float()
        share = float(len(positives) / asked.mean())
        positives = positives + first
    return EmbeddedBatch(
        queries[0],
        queries[1].bool(),
        values,
        mask.bool(),
        numbers,
        positives,
        label["known"],
        teacher,
        share,
    )
