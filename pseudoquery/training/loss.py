"""The training loss, as sentence-transformers' trainer calls it: with or without gradient caching.

Both embed the texts of a batch and leave it to an objective to compare them.
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

from pseudoquery.training.objective import Features, Label, Objective
from pseudoquery.training.score_pairs import TASKS
from pseudoquery.training.teacher import Teacher

MANY = 1 << 30


@dataclass(frozen=True, slots=True)
class Guides:
    """Models whose scores of a batch are learnt from besides the right answers."""

    teacher: Teacher | None = None
    anchor: Teacher | None = None
    """The model whose similarities of mean vectors are to be kept."""

    def complete(self, label: Label, features: Features, texts_at_once: int) -> Label:
        """Add the scores of these models to a label."""
        guides = {"teacher": self.teacher, "anchor": self.anchor}
        scores = {
            name: guide.scores(features, texts_at_once) for name, guide in guides.items() if guide
        }
        return {**label, **scores}


NO_GUIDES = Guides()


class RankingLoss(nn.Module):
    """Embeds a batch at once."""

    def __init__(
        self, model: MultiVectorEncoder, objective: Objective, guides: Guides = NO_GUIDES
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.guides = guides
        self.statistics: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Label) -> Tensor:
        """Embed the queries and the documents, and compare them all."""
        features = list(sentence_features)
        with self.objective.embedding():
            queries, documents = (
                self.model(dict(texts), task=task)
                for texts, task in zip(features, TASKS, strict=True)
            )
        labels = self.guides.complete(self.objective.complete(labels, features), features, MANY)
        computed = self.objective.compute(
            (queries["token_embeddings"], queries["attention_mask"].bool()),
            (documents["token_embeddings"], documents["attention_mask"].bool()),
            labels,
        )
        self.statistics = computed.statistics
        return computed.loss


class CachedRankingLoss(CachedMultiVectorMultipleNegativesRankingLoss):
    """The same loss with gradient caching: batches of any size in the memory of a small one."""

    def __init__(
        self,
        model: MultiVectorEncoder,
        mini_batch_size: int,
        objective: Objective,
        guides: Guides = NO_GUIDES,
    ) -> None:
        super().__init__(model, mini_batch_size=mini_batch_size)
        self.objective = objective
        self.guides = guides
        self.statistics: dict[str, Tensor] = {}
        self._labels: Mapping[str, Tensor] = {}

    def forward(  # type: ignore[override]
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Label
    ) -> Tensor:
        """Store the labels for `calculate_loss`, which gradient caching calls."""
        features = list(sentence_features)
        labels = self.objective.complete(labels, features)
        self._labels = self.guides.complete(labels, features, self.mini_batch_size)
        return super().forward(features, None)

    def embed_minibatch(self, *arguments: Any, **named: Any) -> Any:
        """Embed some of the texts, as the objective wants them."""
        with self.objective.embedding():
            return super().embed_minibatch(*arguments, **named)

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
        computed = self.objective.compute(queries, documents, self._labels)
        self.statistics = computed.statistics
        loss = computed.loss
        if with_backward:
            torch.autograd.backward(loss)
            loss = loss.detach()
        return loss
