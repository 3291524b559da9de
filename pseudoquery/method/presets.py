"""Presets: representations with a name, and how the paper indexes and searches with its own.

The names that begin with "paper" stand for the paper's tasks (Section 4.2). The defaults of
`training.config` say how a model is trained for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeGuard

from pseudoquery.errors import ModelError
from pseudoquery.method.representation import Representation

RECALLED = 1000
"""The first step recalls this many vectors for each of a document's k."""


def index_settings(preset_name: str | None) -> dict[str, Any]:
    """Return a preset's settings for an index.

    The paper cuts documents at 512 tokens, and ranks by pseudo queries alone.
    """
    return {"long": "truncate", "tokens": "none"} if _is_papers(preset_name) else {}


def search_settings(preset_name: str | None, k: int | None) -> dict[str, Any]:
    """Return a preset's settings for a search: the paper recalls 1000*k vectors, of all."""
    if not _is_papers(preset_name):
        return {}
    return {"structure": "flat", "recall_vectors": RECALLED * (k or preset(preset_name).k)}


def _is_papers(preset_name: str | None) -> TypeGuard[str]:
    return preset_name is not None and preset_name.startswith("paper")


_PAPER = Representation(
    query="cls", k=8, iterations=100, special_tokens=True, normalise=False, scale=1.0
)
PRESETS: dict[str, Representation] = {
    # The text of the paper (Section 4.2): fewer vectors where documents are short.
    "paper-passage": replace(_PAPER, k=4),
    "paper-document": _PAPER,
    "paper-openqa": replace(_PAPER, k=4),
    "paper": _PAPER,  # a short name for paper-document
    # What the authors' published program does where it differs from the text.
    "released-code": Representation(
        k=8, seeding="released", special_tokens=True, append="cls", normalise=False, scale=1.0
    ),
    # The best found for an encoder that was not trained for this (docs/log.md: where a token
    # stands); benchmarks/untrained.py compares it with others.
    "recommended": Representation(locality=2.0, scale=10.0),
    "single-vector": Representation(documents="mean", special_tokens=True),
    "late-interaction": Representation(
        documents="tokens", query="tokens", special_tokens=True, scale=1.0, score="max"
    ),
}
"""Representations by name. `preset` returns one of them, with changes if you like."""


def preset(name: str, **changes: Any) -> Representation:
    """Return a representation by its name, with some of its settings changed.

    A preset replaces all settings of a model. To change only some of a trained model's, such as the
    bundled one's, use `representation_for`.

    Args:
        name: One of `PRESETS`.
        changes: Fields of `Representation`.

    Raises:
        ModelError: There is no such preset, or no such setting.

    Examples:
        >>> preset("recommended", k=8).k
        8
    """
    if name not in PRESETS:
        raise ModelError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    return change_representation(PRESETS[name], changes)


def change_representation(
    representation: Representation, changes: Mapping[str, Any]
) -> Representation:
    """Return a representation with some of its settings changed, if there are such settings."""
    known = {field.name for field in fields(Representation)}
    if unknown := sorted(set(changes) - known):
        raise ModelError(
            f"a representation has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}."
        )
    return replace(representation, **changes)
