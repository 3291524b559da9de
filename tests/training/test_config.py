from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.training.config import (
    Config,
    check_config,
    dataset_folder,
    describe_settings,
    load_named_dataset,
    loss_settings,
    read_config,
    short_name,
)
from pseudoquery.training.loss_settings import LossSettings
from pseudoquery.training.rules import rules_of
from tests.support.collection import write_collection

NEEDED = "output = 'o'\ntrain = ['d:s']\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NEEDED + "lerning_rate = 1", "there is no setting 'lerning_rate'"),
        ("output = 'o'", "the setting 'train' is missing"),
        ("train = ['d:s']", "the setting 'output' is missing"),
        ("output = 'o'\ntrain = []", "the setting 'train' is missing"),
        ("output = ", "can't be read as a TOML file"),
        ("output = " + "[" * 5_000, "can't be read as a TOML file"),
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
        (NEEDED + "loss = 4", "loss is 4; it must be a table"),
        (NEEDED + "[loss]\ntoken = 1", "the table loss has no setting 'token'; it has anchor,"),
        (NEEDED + "[loss]\nbudgets = 4", "loss.budgets is 4; it must be a list of integers"),
        (NEEDED + "[loss]\nbudgets = [4, 0]", r"loss.budgets is \(4, 0\); .* at least 1 each"),
        (NEEDED + "[loss]\nbudgets = [4, 4]", r"\(4, 4\); it must be different from each other"),
        (NEEDED + "[loss]\nbudgets = [4.0]", "it must be a list of integers"),
        (NEEDED + "[loss]\ntokens = true", "loss.tokens is True; it must be a number"),
        (NEEDED + "[loss]\nsigns = -1", "loss.signs is -1; it must be at least 0"),
        (NEEDED + "[loss]\ntokens = 1\ntoken_scale = 0", "loss.token_scale is 0; it must be above"),
        (NEEDED + "[loss]\ntoken_scale = 2", "token_scale has no effect without loss.tokens or"),
        (NEEDED + "[loss]\nvectors = 0", "loss.tokens and loss.signs are all 0"),
        (NEEDED + "[loss]\nvectors = 0\ntokens = 1\nbudgets = [4]", "loss.budgets has no effect"),
        (NEEDED + "[loss]\nanchor_model = 'm'", "loss.anchor_model has no effect"),
        (
            NEEDED + "preset = 'single-vector'\n[loss]\nbudgets = [4]",
            "loss.budgets has no effect on documents='mean'",
        ),
        (
            NEEDED + "[loss]\ntokens = 1\n[representation]\ndocuments = 'learnt'",
            "documents='learnt' can't be trained with other settings of the loss",
        ),
        (NEEDED + "[weights]\n'd:t' = 1", "weights names 'd:t', which is not trained on; .* d:s"),
        (NEEDED + "[weights]\n'd:s' = 0", "the weight of d:s is 0; it must be a number above 0"),
        (NEEDED + "[weights]\n'd:s' = inf", "the weight of d:s is inf; it must be a number above"),
        (NEEDED + "[weights]\n'd:s' = true", "the weight of d:s is True; it must be a number"),
        (NEEDED + "[representation]\nkk = 2", "a representation has no setting 'kk'"),
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
    assert loss_settings(read_config(path)) == LossSettings()
    path.write_text(NEEDED + "[loss]\nbudgets = [4, 8]\nsigns = 2\n[weights]\n'd:s' = 0.5\n")
    config = read_config(path)
    assert loss_settings(config) == LossSettings((4, 8), signs=2)
    assert config.weights == {"d:s": 0.5}


def test_settings_that_came_later_are_told_where_they_are_used() -> None:
    """So that a folder, or a stored result, from before them still fits."""
    plain = Config("o", ("d:s",))
    assert {"loss", "weights"}.isdisjoint(describe_settings(plain))
    used = replace(plain, loss={"tokens": 1.0}, weights={"d:s": 2.0})
    assert describe_settings(used) == {
        **describe_settings(plain),
        "loss": {"tokens": 1.0},
        "weights": {"d:s": 2.0},
    }


def test_every_number_has_a_range() -> None:
    defaults = Config("o", ("d:s",))
    numbers = [
        setting.name
        for setting in fields(Config)
        if isinstance(getattr(defaults, setting.name), int | float)
    ]
    assert len(numbers) == 19
    for name in numbers:
        assert len(rules_of(Config)[name]) == 2  # its type and its range
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
