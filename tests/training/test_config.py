from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.method.presets import preset
from pseudoquery.training.config import (
    Config,
    check_config,
    dataset_folder,
    load_named_dataset,
    read_config,
    setting_rules,
    short_name,
)
from tests.support.collection import write_collection

RECIPES = Path(__file__).parents[2] / "recipes"
NEEDED = "output = 'o'\ntrain = ['d:s']\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NEEDED + "lerning_rate = 1", "there is no setting 'lerning_rate'"),
        ("output = 'o'", "the setting 'train' is missing"),
        ("train = ['d:s']", "the setting 'output' is missing"),
        ("output = 'o'\ntrain = []", "the setting 'train' is missing"),
        ("output = ", "can't be read as a TOML file"),
        (NEEDED + "precision = 'int4'", "precision is 'int4'; it must be float32, bf16 or fp16"),
        ("output = 'o'\ntrain = 'd:s'", "train is 'd:s'; it must be a list of texts"),
        ("output = 'o'\ntrain = [1]", r"train is \(1,\); it must be a list of texts"),
        (NEEDED + "neighbours = 5", "blocks of 5 neighbours don't fill a batch of 16"),
        (
            NEEDED + "neighbours = 4\nfirst_negatives = 'random'",
            "random negatives don't show which documents are neighbours",
        ),
        (NEEDED + "start_weight = 1.5", "start_weight is 1.5; it must be from 0 to 1"),
        (NEEDED + "epochs = '3'", "epochs is '3'; it must be a number"),
        (NEEDED + "batch_size = 1.5", "batch_size is 1.5; it must be an integer"),
        (NEEDED + "batch_size = true", "batch_size is True; it must be an integer"),
        (NEEDED + "batch_size = 0", "batch_size is 0; it must be at least 1"),
        (NEEDED + "epochs = 0", "epochs is 0; it must be above 0"),
        (NEEDED + "teacher_temperature = 0.0", "teacher_temperature is 0.0; it must be above 0"),
        (NEEDED + "learning_rate = nan", "learning_rate is nan; it must be above 0"),
        (NEEDED + "representation = 4", "representation is 4; it must be a table"),
        (NEEDED + "evaluate_steps = 4", "evaluate_steps needs a dataset to evaluate on"),
    ],
)
def test_bad_configurations(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ModelError, match=rf"config\.toml.*{message}"):
        read_config(path)


def test_what_is_given_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(NEEDED + "epochs = 2\n[representation]\nk = 8\n")
    assert read_config(path) == Config("o", ("d:s",), epochs=2, representation={"k": 8})


def test_every_number_has_a_range() -> None:
    defaults = Config("o", ("d:s",))
    numbers = [
        setting.name
        for setting in fields(Config)
        if isinstance(getattr(defaults, setting.name), int | float)
    ]
    assert len(numbers) == 19
    for name in numbers:
        assert len(setting_rules()[name]) == 2  # its type and its range
        bad: dict[str, Any] = {name: -1}
        with pytest.raises(ModelError, match=f"{name} is -1; it must be"):
            check_config(Config("o", ("d:s",), **bad))
    check_config(defaults)


def test_names_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_collection(tmp_path / "set")
    assert load_named_dataset(f"{tmp_path}/set:dev").name == "set"
    assert short_name(f"{tmp_path}/set:dev") == "set:dev"
    assert short_name("irds:beir/scifact/test") == "irds:beir/scifact/test"
    assert dataset_folder(f"{tmp_path}/set:dev") == tmp_path / "set"
    assert (dataset_folder("squad-dev:dev") / "README.txt").is_file()
    monkeypatch.chdir(tmp_path / "set")
    assert short_name(".:dev") == "set:dev"
    with pytest.raises(CorpusError, match="as FOLDER:SPLIT"):
        load_named_dataset("folder")
    with pytest.raises(CorpusError, match="ir_datasets has no dataset 'nothing'"):
        load_named_dataset("irds:nothing")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_recipes_of_the_bundled_model_are_read(path: Path) -> None:
    config = read_config(path)
    assert config.model == "minilm"
    preset(config.preset, **config.representation)
