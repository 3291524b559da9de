"""Models on disk to load and to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

from sentence_transformers import MultiVectorEncoder

TEXTS = ["the king of the city", "a river"]


def copy(path: str | Path, folder: Path) -> Path:
    return Path(shutil.copytree(path, folder / "copy"))


def save(model: MultiVectorEncoder, folder: Path) -> str:
    model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


def assert_one_sentence(message: str) -> None:
    assert "\n" not in message
    assert message.endswith(".")
    assert ". " not in message
