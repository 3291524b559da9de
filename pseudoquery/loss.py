"""The training loss: each query should score its own document above all others in the batch.

The documents of a batch are known by number, so that one which appears twice is never a negative
for its own query. The statistics of the paper's Figure 2 come with the dot products.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.losses import (
    CachedMultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.util import (
    all_gather,
    all_gather_padded,
    cat_padded_token_embeddings,
    get_rank,
)
from torch import Tensor, nn

from pseudoquery.model import representation_of
from pseudoquery.representation import Representation
from pseudoquery.scores import contributions, similarity_matrix


@dataclass(frozen=True, slots=True)
class Batch:
    """Embedded queries and documents, ready to be compared."""

    queries: Tensor
    """(queries, query vectors, dim)"""
    queries_mask: Tensor
    documents: Tensor
    """(documents, vectors, dim): all positives, then all first negatives, and so on"""
    documents_mask: Tensor
    numbers: Tensor
    """(documents,): which document of the corpus each one is"""
    positives: Tensor
    """(queries,): where each query's positive stands among the documents"""


def contrastive_loss(batch: Batch, settings: Representation) -> Tensor:
    """Cross-entropy over all documents of the batch, repetitions of the positive left out."""
    scores = similarity_matrix(
        batch.queries,
        batch.documents,
        batch.queries_mask,
        batch.documents_mask,
        score=settings.score,
        scale=settings.scale,
    )
    repeated = batch.numbers[None, :] == batch.numbers[batch.positives][:, None]
    own = nn.functional.one_hot(batch.positives, scores.shape[1]).bool()
    scores = scores.masked_fill(repeated & ~own, -torch.inf)
    return nn.functional.cross_entropy(scores.float(), batch.positives)


def figure_2(batch: Batch, settings: Representation) -> dict[str, float]:
    """Average the largest r(c_j) of each positive document, and their variance."""
    mask = batch.documents_mask[batch.positives]
    vectors = batch.documents[batch.positives]
    dots = settings.scale * torch.einsum("qd,qkd->qk", batch.queries[:, 0], vectors)
    values = contributions(dots.detach().float().masked_fill(~mask, -torch.inf))
    counts = mask.sum(dim=1).clamp(min=1)
    mean = values.sum(dim=1) / counts
    variance = ((values - mean[:, None]).square() * mask).sum(dim=1) / counts
    return {"max_r": float(values.amax(dim=1).mean()), "var_r": float(variance.mean())}


class RankingLoss(nn.Module):
    """The contrastive loss as sentence-transformers' trainer calls it."""

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__()
        self.model = model
        self.settings = representation_of(model)
        self.statistics: dict[str, float] = {}

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """Embed the queries and the documents, and compare them all."""
        queries, documents = (
            self.model(dict(features), task=task)
            for features, task in zip(sentence_features, ("query", "document"), strict=True)
        )
        batch = make_batch(
            (queries["token_embeddings"], queries["attention_mask"].bool()),
            (documents["token_embeddings"], documents["attention_mask"].bool()),
            labels,
        )
        self.statistics = figure_2(batch, self.settings)
        return contrastive_loss(batch, self.settings)


class CachedRankingLoss(CachedMultiVectorMultipleNegativesRankingLoss):
    """The same loss with gradient caching: batches of any size in the memory of a small one."""

    def __init__(self, model: MultiVectorEncoder, mini_batch_size: int) -> None:
        super().__init__(model, mini_batch_size=mini_batch_size)
        self.settings = representation_of(model)
        self.statistics: dict[str, float] = {}
        self._numbers = torch.empty(0)

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Keep the documents' numbers for `calculate_loss`, which the caching calls."""
        if labels is None:
            raise ValueError("the numbers of the documents are missing from the batch")
        self._numbers = labels
        return super().forward(sentence_features, labels)

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
        batch = make_batch(queries, documents, self._numbers)
        self.statistics = figure_2(batch, self.settings)
        loss = contrastive_loss(batch, self.settings)
        if with_backward:
            torch.autograd.backward(loss)
            loss = loss.detach()
        return loss


def make_batch(
    queries: tuple[Tensor, Tensor], documents: tuple[Tensor, Tensor], numbers: Tensor
) -> Batch:
    """Put embeddings and masks together; with several processes, the documents of all of them.

    The documents are all positives, in the queries' order, and then the negatives; `numbers` says
    which documents they are.
    """
    values, mask = documents[0], documents[1].bool()
    first = 0
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        first = get_rank() * len(values)
        values, mask = all_gather_padded(values, mask, with_grad=True)
        numbers = all_gather(numbers)
    positives = first + torch.arange(len(queries[0]), device=values.device)
    return Batch(queries[0], queries[1].bool(), values, mask.bool(), numbers, positives)
