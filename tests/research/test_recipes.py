"""The committed recipes: readable, and the same trainings as those of the experiments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.encoding.model import PUBLISHED_MODEL
from pseudoquery.research.rows import TRAINED
from pseudoquery.research.schedules import SCHEDULES
from pseudoquery.training.config import (
    Config,
    loss_settings,
    read_config,
    short_name,
    trained_representation,
)

RECIPES = {path.stem: path for path in (Path(__file__).parents[2] / "recipes").glob("*.toml")}
NOT_THE_TRAINING = {"output", "evaluate", "save_steps"}


def read(name: str) -> Config:
    return read_config(RECIPES[name])


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_read(name: str) -> None:
    """Each starts from the published encoder, from a model of another recipe, or from a folder."""
    config = read(name)
    outputs = {f"{read(other).output}/model" for other in RECIPES}
    assert config.output == f"models/{name}"
    assert config.model in {PUBLISHED_MODEL, "models/all-mpnet-base-v2"} | outputs
    assert config.teacher in {""} | outputs
    assert config.save_steps >= 500


@pytest.mark.parametrize(
    ("name", "schedule", "row"),
    [
        ("squad-documents", "documents", "every"),
        ("mixture", "mixture", "anchored"),
        ("late-interaction", "mixture", "tokens"),
    ],
)
def test_a_recipe_is_a_row_of_an_experiment(name: str, schedule: str, row: str) -> None:
    config = read(name)
    expected: dict[str, Any] = {**SCHEDULES[schedule], **TRAINED[row].changes}
    assert tuple(map(short_name, config.train)) == tuple(
        f"{name}:train" for name in expected.pop("train")
    )
    assert trained_representation(config) == TRAINED[row].representation
    assert config.learning_rate == TRAINED[row].learning_rate
    for setting in NOT_THE_TRAINING & expected.keys():
        del expected[setting]
    for setting, value in expected.items():
        assert getattr(config, setting) == value, setting


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("mpnet", {"model", "learning_rate", "mini_batch"}),
        ("mixture-taught", {"model", "learning_rate", "teacher", "teacher_temperature", "loss"}),
    ],
)
def test_a_recipe_differs_from_the_mixture_only_in_what_it_says(
    name: str, differing: set[str]
) -> None:
    first, second = asdict(read("mixture")), asdict(read(name))
    changed = {setting for setting, value in first.items() if second[setting] != value}
    assert changed == differing | {"output"}


def test_the_second_stage_is_held_to_the_published_encoder() -> None:
    assert loss_settings(read("mixture-taught")).anchor_model == PUBLISHED_MODEL
    assert read("mixture-taught").model == f"{read('mixture').output}/model"
