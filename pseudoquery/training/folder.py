"""The folder of a training: the settings and the data that it was begun with."""

from __future__ import annotations

import json
from pathlib import Path

from pseudoquery.errors import ModelError
from pseudoquery.files import write_atomically
from pseudoquery.training.batches import TokenisedSets
from pseudoquery.training.config import Config, describe_settings, short_name
from pseudoquery.training.examples import hash_training_set


def begin_folder(folder: Path, config: Config, tokenised: TokenisedSets) -> None:
    """Write the settings and checksums of a training; a folder that holds another is an error."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "negatives").mkdir(exist_ok=True)
    for name, text in _descriptions(config, tokenised).items():
        path = folder / name
        if path.exists() and path.read_text() != text:
            raise ModelError(
                f"{folder} holds a training with another {name}; choose another output folder, "
                "or remove it."
            )
        write_atomically(path, text.encode())


def compare_with_first(folder: Path, config: Config, tokenised: TokenisedSets) -> None:
    """Check that this process has the settings and data of the first one."""
    for name, text in _descriptions(config, tokenised).items():
        path = folder / name
        if not path.exists():
            raise ModelError(
                f"{path}, which the first process has written, is not on this machine; choose an "
                "output on a disk that all machines share."
            )
        if path.read_text() != text:
            raise ModelError(
                f"{path}, which the first process has written, differs from what this machine has; "
                "give all machines the same settings and data."
            )


def _descriptions(config: Config, tokenised: TokenisedSets) -> dict[str, str]:
    """Return the contents of the files that describe a training, by their names."""
    return {
        "config.json": json.dumps(describe_settings(config), indent=2),
        "data.json": json.dumps(_checksums(config, tokenised), indent=2),
    }


def _checksums(config: Config, tokenised: TokenisedSets) -> dict[str, str]:
    return {
        short_name(name): hash_training_set(training_set)
        for name, training_set in zip(config.train, tokenised.training_sets, strict=True)
    }
