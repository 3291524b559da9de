"""The paper's experiments: what its text (Section 4.2) fixes besides how vectors are made.

The presets whose names begin with "paper" stand for its tasks. How a model is trained for them is
in the defaults of `train.Config`.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from pseudoquery.method.representation import preset

RECALLED = 1000
"""The first step recalls this many vectors for each of a document's k."""


def index_settings(preset_name: str | None) -> dict[str, Any]:
    """Say how documents are indexed: cut at what the encoder reads at once, BERT's 512 tokens."""
    return {"long": "truncate"} if _is_papers(preset_name) else {}


def search_settings(preset_name: str | None, k: int | None) -> dict[str, Any]:
    """Say how documents are searched: each vector is compared with, and R = 1000*k recalled."""
    if not _is_papers(preset_name):
        return {}
    return {"structure": "flat", "recall_vectors": RECALLED * (k or preset(preset_name).k)}


def _is_papers(preset_name: str | None) -> TypeGuard[str]:
    return preset_name is not None and preset_name.startswith("paper")
