"""The weights of a trained model, to compare them bit by bit."""

from __future__ import annotations

from pathlib import Path

import torch

from pseudoquery.encoding.model import load_model


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(str(folder), device="cpu").state_dict())


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )
