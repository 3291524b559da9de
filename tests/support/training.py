"""The weights of a trained model, to compare them bit by bit, and a model without chance."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

from pseudoquery.encoding.model import load_model


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(str(folder), device="cpu").state_dict())


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def without_dropout(model: str, target: Path) -> str:
    """Copy a model so that nothing in it is left to chance."""
    shutil.copytree(model, target)
    settings = json.loads((target / "config.json").read_text())
    settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (target / "config.json").write_text(json.dumps(settings))
    return str(target)
