"""The experiments: the paper's tables and figures, as rows that are trained alike.

All rows of a table learn from the same data on the same schedule. Only the representation and the
learning rate differ. The rate of a row is the best of those tried (results/rates.md), by the SQuAD
collections, where rates differ by more than seeds do; where only one was tried, it is a guess from
the other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pseudoquery.method.presets import PRESETS, preset
from pseudoquery.method.representation import Representation

COLLECTIONS = {
    "squad-passages": "dev",
    "squad-documents": "dev",
    "nq-qed": "dev",
    "scifact": "test",
    "medquad-pages": "test",
}
"""The collections, and the split that a model is evaluated on."""
HEADLINE = {"scifact": "nDCG@10", "medquad-pages": "nDCG@10"}
"""The measure that a collection is usually judged by, where it is not MRR@10."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One way to represent documents, and how it is trained."""

    label: str
    learning_rate: float
    representation: Representation
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the schedule."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or a figure."""

    title: str
    schedule: str
    tests: tuple[str, ...]
    rows: tuple[str, ...]
    paper: Mapping[str, str] = field(default_factory=dict)
    """The paper's figures for its own data, by row."""
    paper_data: str = ""
    curves: bool = False
    """Whether it shows how the trainings went, step by step."""


COMMON = {
    "batch_size": 128,
    "queries_per_document": 8,
    "negatives": 1,
    "neighbours": 16,
    "first_negatives": "bm25",
    "mine_depth": 10,
    "document_tokens": 1024,
    "precision": "bf16",
    "save_steps": 100_000,
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "all": COMMON | {"train": tuple(COLLECTIONS), "epochs": 1.0, "refresh_steps": 175},
    "documents": COMMON | {"train": ("squad-documents",), "epochs": 2.0, "refresh_steps": 104},
}
"""How each schedule trains; negatives are refreshed half-way."""
SMALL: dict[str, Any] = {
    "batch_size": 4,
    "neighbours": 2,
    "queries_per_document": 2,
    "refresh_steps": 6,
    "document_tokens": 128,
    "epochs": 1.0,
    "precision": "float32",
}
"""A schedule for a CPU and a small collection, which shows only that everything runs."""
MAXSIM_SCALE = 4.0
"""What MaxSim is multiplied by before the loss: with 1 it is too soft to learn from."""


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
    representation = preset("recommended", locality=locality, scale=MAXSIM_SCALE, **changes)
    return TableRow(f"{label}, k=32, all query tokens (MaxSim)", 5e-4, representation)


ROWS: dict[str, TableRow] = {
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
    "tokens": TableRow(
        "all tokens (ColBERT)", 2e-4, preset("late-interaction", scale=MAXSIM_SCALE)
    ),
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
COMPARED = (
    "cls",
    "mean",
    "first",
    "learnt",
    "random",
    "stretches",
    "pseudo-4",
    "pseudo-8",
    "pseudo-16",
    "pseudo-16-random",
    "pseudo-32",
    "pseudo-32-tokens",
    "local-4",
    "local-8",
    "local-16",
    "local-32",
    "local-32-tokens",
    "tokens",
)
EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        "Passages (in the manner of the paper's Table 1)",
        "all",
        ("squad-passages",),
        COMPARED,
        {"mean": "30.4", "first": "33.4", "tokens": "36.0", "pseudo-4": "34.5"},
        "MS MARCO passages, MRR@10",
    ),
    "table2": Experiment(
        "Documents (in the manner of the paper's Table 2)",
        "all",
        ("squad-documents", "medquad-pages"),
        COMPARED,
        {"first": "33.2", "pseudo-8": "39.2"},
        "MS MARCO documents, MRR@100",
    ),
    "table3": Experiment(
        "Questions and claims (in the manner of the paper's Table 3)",
        "all",
        ("nq-qed", "scifact", "squad-passages"),
        COMPARED,
        {"cls": "78.4", "pseudo-4": "82.3"},
        "Natural Questions, top-20 accuracy",
    ),
    "table5": Experiment(
        "Ablations (the paper's Table 5, and where its text and its program differ)",
        "documents",
        ("squad-documents",),
        (
            "random-4",
            "no-refresh-4",
            "no-refresh-8",
            "pseudo-4",
            "pseudo-8",
            "pseudo-16",
            "pseudo-32",
            "append-cls",
            "append-mean",
            "cls-query",
            "special",
            "mix-0",
            "mix-half",
            "scale-20",
            "raw",
        ),
        {
            "random-4": "36.8",
            "no-refresh-4": "37.3",
            "no-refresh-8": "37.9",
            "pseudo-4": "38.4",
            "pseudo-8": "39.2",
            "pseudo-16": "39.4",
            "pseudo-32": "38.8",
        },
        "MS MARCO documents, MRR@100",
    ),
    "figure2": Experiment(
        "Loss, largest r(c_j) and variance of r(c_j) during training (the paper's Figure 2)",
        "documents",
        ("squad-documents",),
        ("pseudo-16", "first", "random"),
        curves=True,
    ),
}
