"""The folder of a training: what it was begun with, and whether it is the same now."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.config import Config, short_name
from pseudoquery.training.examples import hash_training_set


def begin_folder(folder: Path, config: Config, material: TokenisedSets) -> None:
    """Write down what this training is; a folder that holds another one is refused."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "negatives").mkdir(exist_ok=True)
    for name, text in _descriptions(config, material).items():
        path = folder / name
        if path.exists() and path.read_text() != text:
            raise ModelError(
                f"{folder} holds a training with another {name}; choose another output folder, "
                "or remove it."
            )
        write_atomically(path, text.encode())


def compare_with_first(folder: Path, config: Config, material: TokenisedSets) -> None:
    """Make sure that this process sees what the first one has written, and learns the same."""
    for name, text in _descriptions(config, material).items():
        path = folder / name
        if not path.exists():
            raise ModelError(
                f"{path}, which the first process has written, is not on this machine; choose an "
                "output on a disk that all machines share."
            )
        if path.read_text() != text:
            raise ModelError(
                f"{path}, which the first process has written, is another one on this machine; "
                "give all machines the same settings and data."
            )


def _descriptions(config: Config, material: TokenisedSets) -> dict[str, str]:
    """Describe a training, by the names of the files that say it."""
    return {
        "config.json": json.dumps(asdict(config), indent=2),
        "data.json": json.dumps(_checksums(config, material), indent=2),
    }


def _checksums(config: Config, material: TokenisedSets) -> dict[str, str]:
    return {
        short_name(name): hash_training_set(own)
        for name, own in zip(config.train, material.lessons, strict=True)
    }
