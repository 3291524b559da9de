"""What a batch is worth to a training: from embedded texts and their labels to a loss.

There are two objectives. One compares the vectors that the model's representation makes. The other
takes all tokens from the same one pass of the encoder and compares them in several ways, so that
one model serves every number of vectors and the codes of tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.pooling import Pooling, pooling_of
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.training.embedded_batch import EmbeddedBatch, assemble_batch
from pseudoquery.training.loss_settings import LossSettings
from pseudoquery.training.ranking_losses import (
    NO_DISTILLATION,
    Distillation,
    batch_scores,
    contribution_statistics,
    distillation_loss,
    total_loss,
)
from pseudoquery.training.score_pairs import TASKS
from pseudoquery.training.token_views import (
    TokenBatch,
    Vectors,
    find_special,
    handing_out_tokens,
    pool_tokens,
    straight_through_signs,
    unit_tokens,
)

Label = Mapping[str, Tensor]
Features = Sequence[Mapping[str, Any]]
PLAIN = LossSettings()
ANCHORED = preset("single-vector")
"""What an anchor holds: the mean of all tokens, as the published encoders make it."""


class Computed(NamedTuple):
    """What came of a batch."""

    loss: Tensor
    statistics: dict[str, Tensor]
    """What is logged beside the loss."""


class Objective(Protocol):
    """A way to compute the loss of a batch."""

    def embedding(self) -> AbstractContextManager[None]:
        """Let the model hand out what the objective compares."""

    def complete(self, label: Label, features: Features) -> Label:
        """Add to a label what the tokens of the texts say."""

    def compute(self, queries: Vectors, documents: Vectors, label: Label) -> Computed:
        """Compare all queries with all documents."""


class VectorObjective:
    """Compares the vectors that the model's representation makes."""

    def __init__(self, representation: Representation, distillation: Distillation) -> None:
        self._representation = representation
        self._distillation = distillation

    def embedding(self) -> AbstractContextManager[None]:
        """Take the vectors as they are."""
        return nullcontext()

    def complete(self, label: Label, features: Features) -> Label:  # noqa: ARG002
        """Leave the label as it is."""
        return label

    def compute(self, queries: Vectors, documents: Vectors, label: Label) -> Computed:
        """Compare the vectors by the representation's score."""
        batch = assemble_batch(queries, documents, label)
        statistics = contribution_statistics(batch, self._representation)
        loss = total_loss(batch, self._representation, self._distillation)
        return Computed(loss, statistics)


class TokenObjective:
    """Makes vectors of all tokens in several ways, and adds up the losses of each.

    The number of vectors is drawn from the budgets by the seed and the step alone, so that all
    processes draw the same, and a training that goes on draws what it would have drawn.
    """

    def __init__(
        self,
        model: MultiVectorEncoder,
        settings: LossSettings,
        distillation: Distillation,
        seed: int = 0,
    ) -> None:
        self._model = model
        self._settings = settings
        self._distillation = distillation
        self._seed = seed
        self._representation = pooling_of(model).representation
        self._token_score = Representation(
            "tokens", "tokens", score="max", scale=settings.token_scale
        )

    def embedding(self) -> AbstractContextManager[None]:
        """Let the model hand out all tokens."""
        return handing_out_tokens(self._model)

    def complete(self, label: Label, features: Features) -> Label:
        """Add which tokens are special."""
        special_ids = pooling_of(self._model).special_ids
        special = {
            f"{task}_special": find_special(texts, special_ids)
            for task, texts in zip(TASKS, features, strict=True)
        }
        return {**label, **special}

    def compute(self, queries: Vectors, documents: Vectors, label: Label) -> Computed:
        """Add up the weighted parts."""
        query_tokens, document_tokens = (
            TokenBatch(values, mask, label[f"{task}_special"][:, : values.shape[1]])
            for task, (values, mask) in zip(TASKS, (queries, documents), strict=True)
        )
        settings, statistics = self._settings, {}
        parts: dict[str, Tensor] = {}
        if settings.vectors:
            representation = self._draw_representation(label)
            batch = self._pool(query_tokens, document_tokens, representation, label)
            statistics = contribution_statistics(batch, representation)
            parts["vectors"] = self._rank(batch, representation)
        if settings.tokens or settings.signs:
            batch = assemble_batch(unit_tokens(query_tokens), unit_tokens(document_tokens), label)
            if settings.tokens:
                parts["tokens"] = self._rank(batch, self._token_score)
            if settings.signs:
                signs = replace(batch, documents=straight_through_signs(batch.documents))
                parts["signs"] = self._rank(signs, self._token_score)
        if settings.anchor:
            batch = self._pool(query_tokens, document_tokens, ANCHORED, label)
            scores = batch_scores(batch, ANCHORED)
            parts["anchor"] = batch.share * distillation_loss(scores, label["anchor"], 1.0)
        total = torch.stack([getattr(settings, name) * loss for name, loss in parts.items()]).sum()
        logged = {f"loss_{name}": loss.detach() for name, loss in parts.items()}
        return Computed(total, statistics | logged)

    def _draw_representation(self, label: Label) -> Representation:
        if not self._settings.budgets:
            return self._representation
        budget = draw_budget(self._settings.budgets, self._seed, int(label["step"]))
        return replace(self._representation, k=budget)

    def _pool(
        self,
        queries: TokenBatch,
        documents: TokenBatch,
        representation: Representation,
        label: Label,
    ) -> EmbeddedBatch:
        pooling = Pooling(**representation.settings())
        return assemble_batch(
            pool_tokens(queries, pooling, "query"),
            pool_tokens(documents, pooling, "document"),
            label,
        )

    def _rank(self, batch: EmbeddedBatch, representation: Representation) -> Tensor:
        return total_loss(batch, representation, self._distillation)


def make_objective(
    model: MultiVectorEncoder,
    settings: LossSettings = PLAIN,
    distillation: Distillation = NO_DISTILLATION,
    seed: int = 0,
) -> Objective:
    """Make the objective that the settings of a loss ask for."""
    if settings.is_plain:
        return VectorObjective(pooling_of(model).representation, distillation)
    return TokenObjective(model, settings, distillation, seed)


def draw_budget(budgets: Sequence[int], seed: int, step: int) -> int:
    """Draw the number of vectors of a step."""
    return random.Random(f"{seed} {step}").choice(budgets)  # noqa: S311
