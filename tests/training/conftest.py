"""A training that takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from pseudoquery.training.config import Config
from tests.support.collection import write_collection


@pytest.fixture
def config(tmp_path: Path, tiny_model_path: str) -> Config:
    data = write_collection(tmp_path / "set")
    return Config(
        output=str(tmp_path / "out"),
        train=(f"{data}:train",),
        evaluate=(f"{data}:dev",),
        model=tiny_model_path,
        representation={"k": 3, "scale": 10.0},
        negatives=2,
        epochs=3.0,
        batch_size=4,
        learning_rate=1e-3,
        save_steps=6,
        seed=1,
    )
