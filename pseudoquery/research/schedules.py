"""The collections, and how the trainings of an experiment go."""

from __future__ import annotations

from typing import Any

COLLECTIONS = {
    "squad-passages": "dev",
    "squad-documents": "dev",
    "nq-qed": "dev",
    "scifact": "test",
    "medquad-pages": "test",
}
"""The collections, and the split that a model is evaluated on."""
MORE_COLLECTIONS = dict.fromkeys(
    (
        "openstax",
        "openstax-sections",
        "elife-sections",
        "ms-support",
        "scisumm",
        "ni-qa",
        "github-docs",
        "mdn",
        "elife-abstracts",
        "acl-abstracts",
    ),
    "train",
)
"""Collections with one split, to learn from; or to be judged on, if left out of the training."""
ALL_COLLECTIONS = COLLECTIONS | MORE_COLLECTIONS
FOLDS: dict[str, tuple[str, ...]] = {
    "squad": ("squad-passages", "squad-documents"),
    "questions": ("nq-qed", "ni-qa"),
    "medicine": ("scifact", "medquad-pages"),
    "openstax": ("openstax", "openstax-sections"),
    "elife": ("elife-sections", "elife-abstracts"),
    "software": ("ms-support", "github-docs", "mdn"),
    "papers": ("scisumm", "acl-abstracts"),
}
"""Collections that are left out together: those that have texts or subjects in common."""
HEADLINE = {"scifact": "nDCG@10", "medquad-pages": "nDCG@10"}
"""The measure that a collection is usually judged by, where it is not MRR@10."""

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
MIXTURE_WEIGHTS = {
    "squad-passages": 0.5,
    "scifact": 4.0,
    "nq-qed": 2.0,
    "elife-abstracts": 0.25,
    "acl-abstracts": 0.25,
}
"""How often an epoch goes through a collection of the mixture, where it is not once: less often
where titles are all there is to learn from, or where another one has the same texts; more often
where it is small and its queries are those that people type."""


def _mixture(left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Train on all collections but some."""
    names = tuple(name for name in ALL_COLLECTIONS if name not in left_out)
    weights = {f"{name}:train": MIXTURE_WEIGHTS[name] for name in names if name in MIXTURE_WEIGHTS}
    return COMMON | {
        "train": names,
        "weights": weights,
        "epochs": 1.0,
        "refresh_steps": 425,
        "document_tokens": 2048,  # some collections have long documents
        "mini_batch": 64,
    }


SCHEDULES: dict[str, dict[str, Any]] = {
    "all": COMMON | {"train": tuple(COLLECTIONS), "epochs": 1.0, "refresh_steps": 175},
    "documents": COMMON | {"train": ("squad-documents",), "epochs": 2.0, "refresh_steps": 104},
    "mixture": _mixture(),
    **{f"without-{name}": _mixture(left_out) for name, left_out in FOLDS.items()},
}
"""How each schedule trains; negatives are refreshed half-way."""


def judged_collections(schedule: str) -> tuple[str, ...]:
    """Name the collections that a training is judged on: all that some experiment asks for."""
    if schedule.startswith("without-"):
        return FOLDS[schedule.removeprefix("without-")]
    trained_on = SCHEDULES[schedule]["train"]
    return tuple(name for name in COLLECTIONS if name in trained_on)


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
