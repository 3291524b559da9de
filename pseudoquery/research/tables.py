"""The experiments: the paper's tables and figures, and those that go beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pseudoquery.research.rows import EVERY_BUDGET_ROWS
from pseudoquery.research.schedules import COLLECTIONS, FOLDS


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or a figure."""

    title: str
    schedules: tuple[str, ...]
    """The schedules that each row is trained on; the tests of each are judged by that training."""
    tests: tuple[str, ...]
    rows: tuple[str, ...]
    paper: Mapping[str, str] = field(default_factory=dict)
    """The paper's figures for its own data, by row."""
    paper_data: str = ""
    curves: bool = False
    """Whether it shows how the trainings went, step by step."""


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
    *EVERY_BUDGET_ROWS,
)
KEEPING = (
    "published-mean",
    "published-16",
    "published-16-signs",
    "every-16",
    "every-16-signs",
    "mixed-16",
    "mixed-16-signs",
    "anchored-16",
    "anchored-16-signs",
)
"""What is learnt and what is kept, side by side."""
EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        "Passages (in the manner of the paper's Table 1)",
        ("all",),
        ("squad-passages",),
        COMPARED,
        {"mean": "30.4", "first": "33.4", "tokens": "36.0", "pseudo-4": "34.5"},
        "MS MARCO passages, MRR@10",
    ),
    "table2": Experiment(
        "Documents (in the manner of the paper's Table 2)",
        ("all",),
        ("squad-documents", "medquad-pages"),
        COMPARED,
        {"first": "33.2", "pseudo-8": "39.2"},
        "MS MARCO documents, MRR@100",
    ),
    "table3": Experiment(
        "Questions and claims (in the manner of the paper's Table 3)",
        ("all",),
        ("nq-qed", "scifact", "squad-passages"),
        COMPARED,
        {"cls": "78.4", "pseudo-4": "82.3"},
        "Natural Questions, top-20 accuracy",
    ),
    "table5": Experiment(
        "Ablations (the paper's Table 5, and where its text and its program differ)",
        ("documents",),
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
            "local-16-signs",
            "tokens-signs",
            *EVERY_BUDGET_ROWS,
            "every-16-floats",
            "every-16-signs-20",
            "every-16-signs-50",
            "every-16-signs-100",
            "every-16-signs-500",
            "every-signs",
            "every-floats",
            "no-signs-16-signs",
            "one-4",
            "one-8",
            "one-16",
            "one-32",
            "one-16-signs",
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
        ("documents",),
        ("squad-documents",),
        ("pseudo-16", "first", "random"),
        curves=True,
    ),
    "mixture": Experiment(
        "Trained on all collections",
        ("mixture",),
        tuple(COLLECTIONS),
        KEEPING,
    ),
    "left-out": Experiment(
        "Collections that the training has not seen",
        tuple(f"without-{name}" for name in FOLDS),
        tuple(name for left_out in FOLDS.values() for name in left_out),
        KEEPING,
    ),
}
