"""The rows of the experiments: representations that are trained alike, and uses of the models.

All rows of a table learn from the same data on the same schedule. Only the representation, the loss
and the learning rate differ. The rate of a row is the best of those tried (results/rates.md), by
the SQuAD collections, where rates differ by more than seeds do; where only one was tried, it is a
guess from the other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pseudoquery.method.presets import PRESETS, preset
from pseudoquery.method.representation import Representation
from pseudoquery.training.loss_settings import TOKEN_SCALE


@dataclass(frozen=True, slots=True)
class Use:
    """How a model is used when it is judged, where this differs from its training."""

    k: int | None = None
    """How many vectors a document has; by default as in the training."""
    tokens: Literal["none", "signs", "floats"] = "none"
    """By which form of their tokens the best documents are ranked again."""
    candidates: int = 200
    """How many are ranked again; 0 for all documents, without a first step."""
    start_share: float = 0.0
    """How much of the starting weights is mixed into the trained ones."""


NO_CHANGE = Use()


@dataclass(frozen=True, slots=True)
class TableRow:
    """One way to represent documents, and how it is trained."""

    label: str
    learning_rate: float
    representation: Representation
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the schedule."""
    use: Use = NO_CHANGE
    """How the trained model is used."""
    trained_as: str = ""
    """The row whose training this one shares; by default it has its own."""
    trained: bool = True
    """Whether there is a training; otherwise the encoder is judged as it was published."""


def _pseudo(label: str, **changes: Any) -> TableRow:
    """Cluster as the paper does: tokens from all over a document."""
    plain = {"locality": 0.0, "mix_mean": 1.0, "scale": 40.0}
    return TableRow(label, 2e-4, preset("recommended", **plain | changes))


def _local(k: int) -> TableRow:
    """Cluster tokens that stand near each other."""
    representation = preset("recommended", k=k, locality=2.0, mix_mean=0.5, scale=40.0)
    return TableRow(f"pseudo queries by place, k={k}", 2e-4, representation)


def _all_query_tokens(label: str, locality: float) -> TableRow:
    changes = {"k": 32, "query": "tokens", "score": "max", "mix_mean": 0.0}
    representation = preset("recommended", locality=locality, scale=TOKEN_SCALE, **changes)
    return TableRow(f"{label}, k=32, all query tokens (MaxSim)", 5e-4, representation)


BUDGETS = [4, 8, 16, 32]
EVERY_BUDGET: dict[str, Any] = {"budgets": BUDGETS, "tokens": 1.0, "signs": 1.0}
"""A loss that makes one model for every number of vectors and for the codes of tokens."""


def _every_budget(label: str, loss: Mapping[str, Any]) -> TableRow:
    """Train with a loss of several parts, on clusters of tokens that stand near each other."""
    return replace(_local(16), label=label, changes={"loss": loss})


def _used(row: str, label: str, use: Use) -> TableRow:
    """Use the model of another row in another way."""
    return replace(TRAINED[row], label=label, use=use, trained_as=row)


def _uses_of_every_budget() -> dict[str, TableRow]:
    """Use one model with each number of vectors, alone and with the signs of tokens."""
    rows = {}
    for k in BUDGETS:
        label = f"every budget, k={k}"
        rows[f"every-{k}"] = _used("every", label, Use(k))
        rows[f"every-{k}-signs"] = _used("every", f"{label}, signs", Use(k, "signs"))
    return rows


def _published(label: str, representation: Representation, use: Use = NO_CHANGE) -> TableRow:
    return TableRow(f"published, {label}", 0.0, representation, use=use, trained=False)


SHOWN_AS_TRAINED: dict[str, TableRow] = {
    "cls": TableRow("CLS (DPR)", 1e-4, Representation("cls", "cls", special_tokens=True)),
    "mean": TableRow("mean (RepBERT)", 1e-4, PRESETS["single-vector"]),
    "first": TableRow("first k tokens (ME-BERT), k=16", 2e-4, Representation("first", k=16)),
    "learnt": TableRow("learnt k codes (Poly-Encoder), k=16", 5e-4, Representation("learnt", k=16)),
    "random": TableRow("random k tokens, k=16", 2e-4, Representation("random", k=16)),
    "stretches": TableRow(
        "k equal stretches of the text, k=16",
        2e-4,
        Representation("stretches", k=16, mix_mean=0.5, scale=40.0),
    ),
    "tokens": TableRow("all tokens (ColBERT)", 2e-4, preset("late-interaction", scale=TOKEN_SCALE)),
    "pseudo-4": _pseudo("pseudo queries, k=4", k=4),
    "pseudo-8": _pseudo("pseudo queries, k=8", k=8),
    "pseudo-16": _pseudo("pseudo queries, k=16"),
    "pseudo-32": _pseudo("pseudo queries, k=32", k=32),
    "pseudo-16-random": _pseudo("pseudo queries, k=16, random seeds", seeding="random"),
    "pseudo-32-tokens": _all_query_tokens("pseudo queries", 0.0),
    "local-4": _local(4),
    "local-8": _local(8),
    "local-16": _local(16),
    "local-32": _local(32),
    "local-32-tokens": _all_query_tokens("pseudo queries by place", 2.0),
    # The ablations of Table 5, and where the paper and its program differ.
    "no-refresh-4": replace(_pseudo("k=4, no refresh", k=4), changes={"refresh_steps": 0}),
    "no-refresh-8": replace(_pseudo("k=8, no refresh", k=8), changes={"refresh_steps": 0}),
    "random-4": _pseudo("k=4, random seeds", k=4, seeding="random"),
    "append-cls": _pseudo("k=16, CLS appended", append="cls"),
    "append-mean": _pseudo("k=16, mean appended", append="mean"),
    "cls-query": _pseudo("k=16, CLS as query", query="cls"),
    "special": _pseudo("k=16, special tokens clustered too", special_tokens=True),
    "mix-0": _pseudo("k=16, no document mean mixed in", mix_mean=0.0),
    "mix-half": _pseudo("k=16, half of the document mean mixed in", mix_mean=0.5),
    "scale-20": _pseudo("k=16, scale 20", scale=20.0),
    "raw": replace(
        _pseudo("k=16, raw dot products", normalise=False, scale=1.0), learning_rate=5e-5
    ),
}
"""Rows whose model is used as it was trained."""
TRAINED: dict[str, TableRow] = SHOWN_AS_TRAINED | {
    "every": _every_budget("every budget", EVERY_BUDGET),
    "one-budget": _every_budget("one budget (16)", EVERY_BUDGET | {"budgets": [16]}),
    "no-signs": _every_budget("every budget, not for signs", EVERY_BUDGET | {"signs": 0.0}),
    "anchored": _every_budget("every budget, anchored", EVERY_BUDGET | {"anchor": 1.0}),
}
"""Rows that have a training of their own."""
EVERY_BUDGET_ROWS = _uses_of_every_budget()
SIGNS = Use(16, "signs")
ROWS: dict[str, TableRow] = {
    **SHOWN_AS_TRAINED,
    **EVERY_BUDGET_ROWS,
    # What the ranking by tokens is made of: its form, how it was trained for, and how deep it is.
    "every-16-floats": _used("every", "every budget, k=16, floats", Use(16, "floats")),
    **{
        f"every-16-signs-{depth}": _used(
            "every", f"every budget, k=16, signs, best {depth}", Use(16, "signs", depth)
        )
        for depth in (20, 50, 100, 500)
    },
    "every-signs": _used("every", "every budget, signs, all documents", Use(16, "signs", 0)),
    "every-floats": _used("every", "every budget, floats, all documents", Use(16, "floats", 0)),
    "no-signs-16-signs": _used("no-signs", "k=16, signs, not trained for signs", SIGNS),
    "local-16-signs": _used("local-16", "k=16, signs, trained for vectors only", SIGNS),
    "tokens-signs": _used(
        "tokens", "signs of late interaction, all documents", Use(16, "signs", 0)
    ),
    **{f"one-{k}": _used("one-budget", f"one budget (16), k={k}", Use(k)) for k in (4, 8, 16, 32)},
    "one-16-signs": _used("one-budget", "one budget (16), k=16, signs", SIGNS),
    # What is kept of the encoder that the trainings start from.
    "published-mean": _published("one vector", PRESETS["single-vector"]),
    "published-16": _published("k=16", PRESETS["recommended"]),
    "published-16-signs": _published("k=16, signs", PRESETS["recommended"], SIGNS),
    "mixed-16": _used("every", "every budget + 0.3 published, k=16", Use(16, start_share=0.3)),
    "mixed-16-signs": _used(
        "every", "every budget + 0.3 published, k=16, signs", Use(16, "signs", start_share=0.3)
    ),
    "anchored-16": _used("anchored", "every budget, anchored, k=16", Use(16)),
    "anchored-16-signs": _used("anchored", "every budget, anchored, k=16, signs", SIGNS),
}
