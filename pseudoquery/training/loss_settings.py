"""What the loss of a training is made of, which the table [loss] of a TOML file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pseudoquery.errors import ModelError
from pseudoquery.method.representation import Representation
from pseudoquery.training.rules import Amount, PositiveAmount, PositiveCounts, check_settings

WITH_K = ("pseudo-queries", "first", "random", "stretches")
"""Representations whose number of vectors can change from step to step."""
TOKEN_SCALE = 4.0
"""What MaxSim is multiplied by before the loss: with 1 it is too soft to learn from."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The parts of a loss and their weights.

    All parts come from one pass of the encoder. By default there is one: the score of the vectors
    that the representation makes.
    """

    budgets: PositiveCounts = ()
    """How many vectors a document has: each step draws one of these. If empty, always the
    representation's k."""
    vectors: Amount = 1.0
    """The weight of the score of these vectors."""
    tokens: Amount = 0.0
    """The weight of MaxSim between all tokens of a query and of a document."""
    signs: Amount = 0.0
    """The weight of MaxSim between the tokens of a query and the signs of a document's."""
    token_scale: PositiveAmount = TOKEN_SCALE
    """What both MaxSim scores are multiplied by: the loss of a small score is too soft."""
    anchor: Amount = 0.0
    """How strongly the similarities of mean vectors are held to those of another model."""
    anchor_model: str = ""
    """The model that they are held to; by default the one that the training starts from."""

    @property
    def is_plain(self) -> bool:
        """Whether the vectors of the representation are all that counts."""
        return self == LossSettings()


def make_loss_settings(table: Mapping[str, Any], representation: Representation) -> LossSettings:
    """Make settings of a table, and check that a representation can be trained with them."""
    known = {setting.name for setting in fields(LossSettings)}
    if unknown := sorted(set(table) - known):
        raise ModelError(
            f"the table loss has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}."
        )
    values = dict(table)
    if isinstance(values.get("budgets"), list):
        values["budgets"] = tuple(values["budgets"])
    settings = LossSettings(**values)
    check_settings(settings, "loss")
    _check_together(settings, representation)
    return settings


def _check_together(settings: LossSettings, representation: Representation) -> None:
    """Raise an error where settings contradict each other or the representation."""
    if not (settings.vectors or settings.tokens or settings.signs):
        raise ModelError(
            "loss.vectors, loss.tokens and loss.signs are all 0; give at least one a weight."
        )
    if settings.budgets and not settings.vectors:
        raise ModelError("loss.budgets has no effect with loss.vectors = 0; drop one of them.")
    if settings.token_scale != TOKEN_SCALE and not (settings.tokens or settings.signs):
        raise ModelError(
            "loss.token_scale has no effect without loss.tokens or loss.signs; drop it."
        )
    if settings.anchor_model and not settings.anchor:
        raise ModelError("loss.anchor_model has no effect with loss.anchor = 0; drop it.")
    if settings.budgets and representation.documents not in WITH_K:
        raise ModelError(
            f"loss.budgets has no effect on documents={representation.documents!r}; choose one of "
            f"{', '.join(WITH_K)}, or drop budgets."
        )
    if representation.documents == "learnt" and not settings.is_plain:
        raise ModelError(
            "documents='learnt' can't be trained with other settings of the loss; drop the table "
            "loss."
        )
