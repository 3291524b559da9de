"""Training for real, on a tiny encoder and a collection that can be learnt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from collection import write_collection

from pseudoquery.cli import main
from pseudoquery.course import Course
from pseudoquery.datasets import load_dataset
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.model import load_model, representation_of
from pseudoquery.train import Config, _last_checkpoint, measure, read_config, train
from pseudoquery.triples import lesson

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")


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


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(str(folder), device="cpu").state_dict())


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def test_training_makes_the_model_better(config: Config, tmp_path: Path) -> None:
    config = replace(config, epochs=40.0, learning_rate=3e-3, refresh_steps=80, save_steps=1000)
    finished = train(config)
    dev = load_dataset(str(tmp_path / "set"), "dev")
    before = measure(load_model(config.model, device="cpu"), dev)
    model = load_model(str(finished), device="cpu")
    after = measure(model, dev)
    assert after["RR@10"] > before["RR@10"] + 0.3
    saved = json.loads((Path(config.output) / "figures.json").read_text())
    assert saved[config.evaluate[0]] == pytest.approx(after)
    assert (representation_of(model).k, representation_of(model).scale) == (3, 10.0)
    assert json.loads((Path(config.output) / "config.json").read_text())["epochs"] == 40.0
    assert len(json.loads((Path(config.output) / "data.json").read_text())["set"]) == 64
    names = sorted(path.name for path in (Path(config.output) / "negatives").iterdir())
    assert names == ["00000000.jsonl", "00000080.jsonl", "00000160.jsonl"]
    mined = [(Path(config.output) / "negatives" / name).read_text() for name in names]
    assert len(set(mined)) == 3, "every refresh mines with another model"
    assert not list(finished.rglob("*.bin"))
    assert list(Path(config.output).rglob("events.out.tfevents.*")), "TensorBoard's curves"


@pytest.mark.parametrize(
    ("mini_batch", "moment"),
    [(0, "trainer_state.json"), (3, "trainer_state.json"), (0, "."), (0, "optimizer.pt")],
    ids=["after a checkpoint", "with caching", "at a checkpoint's first file", "in its middle"],
)
def test_a_killed_training_ends_where_an_uninterrupted_one_does(
    config: Config, tmp_path: Path, mini_batch: int, moment: str
) -> None:
    config = replace(config, refresh_steps=4, save_steps=3, mini_batch=mini_batch)
    expected = weights(train(replace(config, output=str(tmp_path / "whole"))))
    program = (
        "import json, sys; from pseudoquery.train import Config, train; "
        "c = json.loads(sys.argv[1]); c['train'] = tuple(c['train']); train(Config(**c))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(asdict(config))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    wanted = Path(config.output) / "checkpoints" / "checkpoint-6" / moment
    while not wanted.exists() and child.poll() is None:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed = child.returncode == -signal.SIGKILL
    assert same(weights(train(config)), expected)
    assert killed, "the training ended before it could be killed"


def test_a_half_written_checkpoint_is_none(tmp_path: Path) -> None:
    assert _last_checkpoint(tmp_path) is None
    for step, state in ((3, "{}"), (12, "{}"), (20, None), (30, '{"global_st')):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"")
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert _last_checkpoint(tmp_path) == str(tmp_path / "checkpoints" / "checkpoint-12")


def test_the_seed_and_the_data_decide(config: Config, tmp_path: Path) -> None:
    config = replace(config, epochs=1.0)
    first = weights(train(replace(config, output=str(tmp_path / "1"))))
    assert same(weights(train(replace(config, output=str(tmp_path / "2")))), first)
    assert not same(weights(train(replace(config, output=str(tmp_path / "3"), seed=2))), first)
    changes: tuple[dict[str, Any], ...] = (
        {"learning_rate": 1e-4},
        {"negatives": 1},
        {"first_negatives": "random"},
        {"first_negatives": "model"},
        {"warmup": 0.5},
        {"document_tokens": 8},
        {"max_gradient_norm": 0.01},
        {"weight_decay": 0.5},
        {"precision": "bf16"},
        {"representation": {"k": 2}},
        {"preset": "single-vector"},
        {"mine_depth": 1},
    )
    for number, change in enumerate(changes):
        changed: dict[str, Any] = {"output": str(tmp_path / f"change{number}"), **change}
        assert not same(weights(train(replace(config, **changed))), first), change


def test_a_folder_of_another_training_is_refused(config: Config) -> None:
    config = replace(config, epochs=1.0)
    train(config)
    with pytest.raises(ModelError, match=r"holds a training with another config\.json"):
        train(replace(config, learning_rate=1.0))


def test_too_few_queries_for_a_batch(config: Config) -> None:
    with pytest.raises(CorpusError, match="there are 24 queries to learn from, fewer than"):
        train(replace(config, batch_size=25))


def test_a_loss_that_is_not_a_number_stops_the_training(config: Config) -> None:
    with pytest.raises(ModelError, match=r"the loss is (nan|inf) at step"):
        train(replace(config, learning_rate=1e30, epochs=5.0))


def test_a_batch_is_positives_then_negatives(config: Config, tmp_path: Path) -> None:
    model = load_model(config.model, device="cpu")
    own = lesson(load_dataset(str(tmp_path / "set"), "train"))
    course = Course([own, own], model.tokenizer, negatives=2, tokens=64, seed=0)
    assert len(course.rows) == 48
    batch = course([{"row": 0}, {"row": 25}])
    assert batch["query_input_ids"].shape[0] == 2
    assert batch["documents_input_ids"].shape[0] == 6
    numbers = batch["label"].tolist()
    assert numbers[:2] == [0, 12], "the same document of two lessons is two documents"
    assert all(number < 12 for number in numbers[2::2])
    assert all(number >= 12 for number in numbers[3::2])
    text = model.tokenizer.decode(batch["documents_input_ids"][0], skip_special_tokens=True)
    assert "about the king" in text
    course.use({f"set {own.examples[0].query_id}": ["d7", "d8"]}, "mined")
    assert sorted(course([{"row": 0}])["label"].tolist()[1:]) == [7, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output = 'o'\ntrain = ['d:s']\nlerning_rate = 1", "there is no setting 'lerning_rate'"),
        ("output = 'o'", "the setting 'train' is missing"),
        ("train = ['d:s']", "the setting 'output' is missing"),
        ("output = ", "can't be read as a TOML file"),
        ("output = 'o'\ntrain = ['d:s']\nprecision = 'int4'", "precision is 'int4'; choose one of"),
    ],
)
def test_bad_configurations(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ModelError, match=message):
        read_config(path)


def test_the_commands(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    negatives = tmp_path / "negatives.jsonl"
    data = str(tmp_path / "set")
    main(["mine", data, "--split", "train", "--out", str(negatives), "--depth", "3", "--json"])
    assert json.loads(capsys.readouterr().out) == {"queries": 24, "negatives": 72}
    main(["mine", data, "--split", "train", "--out", str(negatives), "--model", config.model])
    assert "negatives for 24 queries" in capsys.readouterr().out
    path = tmp_path / "config.toml"
    path.write_text(
        f"output = {config.output!r}\ntrain = [{config.train[0]!r}]\nmodel = {config.model!r}\n"
        f"evaluate = [{config.evaluate[0]!r}]\nfirst_negatives = {str(negatives)!r}\n"
        "epochs = 1.0\nbatch_size = 4\n[representation]\nk = 2\n"
    )
    main(["train", str(path), "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["model"] == str(Path(config.output) / "model")
    assert set(printed["figures"]) == set(config.evaluate)
    assert load_model(printed["model"], device="cpu")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(tmp_path / "missing.toml")])
    assert stopped.value.code == 2
    assert "can't be read as a TOML file" in capsys.readouterr().err
