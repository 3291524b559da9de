"""Averages of the weights of models that were trained from the same one.

The average of a trained model and the one that it was trained from keeps more of what the latter
could do (Wortsman et al., 2022, "Robust fine-tuning of zero-shot models"). The average of trainings
with different seeds is often better than each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import load_model, locate_model
from pseudoquery.errors import ModelError
from pseudoquery.files import replace_folder, write_atomically
from pseudoquery.training.model_card import FRONT_MATTER, name_model
from pseudoquery.training.trainer import hide_progress_bars


def mix_weights(model: MultiVectorEncoder, other: MultiVectorEncoder, share: float) -> None:
    """Move the weights of a model towards those of another one, by a share from 0 to 1."""
    others = dict(other.named_parameters())
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.lerp_(others[name].to(weights.device), share)


def average_models(names: Sequence[str], weights: Sequence[float], target: Path) -> None:
    """Write the average of the weights of some models, with the settings of the last one.

    Args:
        names: Two models or more, as `load_model` takes them.
        weights: How much each counts. They are divided by their sum.
        target: The folder to write; it must not exist.

    Raises:
        ModelError: The models don't fit together, or the folder exists.
    """
    if len(names) < 2 or len(weights) != len(names):
        raise ModelError(
            f"there are {len(names)} models and {len(weights)} weights; give at least two models, "
            "and a weight for each."
        )
    if not all(weight > 0 and weight < float("inf") for weight in weights):
        raise ModelError(f"the weights are {list(weights)}; each must be a number above 0.")
    if target.exists():
        raise ModelError(f"{target} exists; choose another folder for the average.")
    model = load_model(names[-1], device="cpu")
    total = weights[-1]
    for name, weight in zip(names[:-1], weights[:-1], strict=True):
        other = load_model(name, device="cpu")
        _compare_shapes(model, other, name, names[-1])
        total += weight
        mix_weights(model, other, weight / total)
    card = make_average_card(names, [weight / total for weight in weights])

    def write(folder: Path) -> None:
        with hide_progress_bars():
            model.save_pretrained(str(folder), create_model_card=False)
        write_atomically(folder / "README.md", card.encode())

    replace_folder(target, write)


def make_average_card(names: Sequence[str], shares: Sequence[float]) -> str:
    """Return the card of the last model, which says first what the average is made of."""
    path = Path(locate_model(names[-1])) / "README.md"
    described = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    front = FRONT_MATTER.match(described)
    metadata = front[0] if front else "---\nlibrary_name: sentence-transformers\n---\n"
    parts = [
        f"- {share:.3g} of {name_model(name)}" for name, share in zip(names, shares, strict=True)
    ]
    lines = (
        "# An average of models",
        "The weights of this model are averages:",
        "\n".join(parts),
        "Its settings are those of the last model, which the rest of this card describes. Scores "
        "that are stated there are those of that model, not of the average.",
    )
    return f"{metadata}\n" + "\n\n".join(lines) + "\n" + FRONT_MATTER.sub("", described)


def _compare_shapes(
    model: MultiVectorEncoder, other: MultiVectorEncoder, name: str, last: str
) -> None:
    """Raise an error unless both have the same weights, but for their values."""
    shapes, others = (
        {key: value.shape for key, value in each.named_parameters()} for each in (model, other)
    )
    if shapes != others:
        raise ModelError(
            f"the weights of {name_model(name)} and of {name_model(last)} have different shapes; "
            "only models that were trained from the same one have an average."
        )
