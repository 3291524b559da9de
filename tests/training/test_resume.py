"""A training that was stopped, or met a full disk, goes on and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import ModelError
from pseudoquery.training import train as training
from pseudoquery.training.checkpoints import find_last_checkpoint, is_whole
from pseudoquery.training.config import Config
from pseudoquery.training.train import train
from pseudoquery.training.trainer import RetrievalTrainer
from tests.support.collection import write_collection
from tests.support.disks import remount, small_disk
from tests.support.training import same, weights


@pytest.mark.parametrize(
    ("mini_batch", "moment"),
    [(0, "whole.json"), (3, "whole.json"), (0, "."), (0, "optimizer.pt")],
    ids=["after a checkpoint", "with caching", "at a checkpoint's first file", "in its middle"],
)
def test_a_killed_training_ends_where_an_uninterrupted_one_does(
    config: Config, tmp_path: Path, mini_batch: int, moment: str
) -> None:
    config = replace(config, refresh_steps=4, save_steps=3, mini_batch=mini_batch)
    expected = weights(train(replace(config, output=str(tmp_path / "whole"))))
    program = (
        "import json, sys; from pseudoquery.training.config import Config; "
        "from pseudoquery.training.train import train; c = json.loads(sys.argv[1]); "
        "c['train'], c['evaluate'] = tuple(c['train']), tuple(c['evaluate']); train(Config(**c))"
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


class StoppedError(Exception):
    """What ends a training before its time."""


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make trainings fail after so many steps; returns what makes them succeed again."""
    collect = RetrievalTrainer.collect_features

    def failing(self: RetrievalTrainer, inputs: dict[str, Any]) -> Any:
        if self.state.global_step == step:
            raise StoppedError
        return collect(self, inputs)

    monkeypatch.setattr(RetrievalTrainer, "collect_features", failing)
    return lambda: monkeypatch.setattr(RetrievalTrainer, "collect_features", collect)


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"refresh_steps": 3, "save_steps": 3}, 10),
        ({"refresh_steps": 2, "save_steps": 3}, 7),
        ({"save_steps": 6}, 12),
        ({"save_steps": 4, "two": True}, 11),
        ({"save_steps": 4, "two": True, "refresh_steps": 4, "queries_per_document": 2}, 9),
        ({"save_steps": 4, "taught": True, "mini_batch": 2}, 6),
        ({"save_steps": 4, "neighbours": 2, "refresh_steps": 5, "start_weight": 0.5}, 10),
        ({"save_steps": 4, "precision": "bf16", "evaluate_steps": 5}, 6),
        ({"save_steps": 4, "loss": {"budgets": [1, 2, 3], "signs": 1.0, "anchor": 1.0}}, 9),
        ({"save_steps": 4, "two": True, "weights": {"set:train": 0.5, "other:dev": 2}}, 15),
    ],
    ids=str,
)
def test_a_stopped_training_goes_on_to_the_bit(
    config: Config,
    tmp_path: Path,
    changes: dict[str, Any],
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negatives exchanged at a checkpoint, ends of epochs, two training_sets, a teacher."""
    changes = dict(changes)
    if changes.pop("two", False):
        other = write_collection(tmp_path / "other")
        config = replace(config, train=(*config.train, f"{other}:dev"))
    if changes.pop("taught", False):
        changes["teacher"] = config.model
    config = replace(config, **changes)
    expected = weights(train(replace(config, output=str(tmp_path / "whole"))))
    go_on = stop_at(step, monkeypatch)
    with pytest.raises(StoppedError):
        train(config)
    go_on()
    found = find_last_checkpoint(Path(config.output) / "checkpoints")
    assert found is not None
    assert found.name == f"checkpoint-{step // config.save_steps * config.save_steps}"
    assert same(weights(train(config)), expected)


def test_a_finished_training_can_be_run_again(config: Config) -> None:
    expected = weights(train(config))
    model = Path(config.output) / "model"
    (model / "old").write_text("of the first run")
    assert same(weights(train(config)), expected)
    assert not (model / "old").exists()


def test_a_checkpoint_of_another_model(
    config: Config, plain_model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's folder was exchanged for one with another hidden size."""
    base = shutil.copytree(plain_model_path, tmp_path / "base")
    config = replace(config, model=str(base), save_steps=4)
    expected = weights(train(replace(config, output=str(tmp_path / "whole"))))
    go_on = stop_at(9, monkeypatch)
    with pytest.raises(StoppedError):
        train(config)
    go_on()
    for name in ("config.json", "model.safetensors"):
        (base / name).rename(tmp_path / name)
    small = BertConfig.from_pretrained(tmp_path / "config.json", hidden_size=16)
    BertModel(small).save_pretrained(base)
    files = {path: path.stat().st_mtime_ns for path in Path(config.output).rglob("*.*")}
    with pytest.raises(
        ModelError, match=r"checkpoint-8 does not fit the model .* put that one back"
    ):
        train(config)
    kept = {path: path.stat().st_mtime_ns for path in Path(config.output).rglob("*.*")}
    changed = {path.name for path in files if kept.get(path) != files[path]}
    assert changed <= {"config.json", "data.json"}, "which are written again, as they were"
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).rename(base / name)
    assert same(weights(train(config)), expected), "nothing was lost"


@pytest.mark.parametrize(
    ("kilobytes", "kept"), [(200, None), (560, "checkpoint-6"), (1000, "checkpoint-12")]
)
def test_a_full_disk_loses_nothing(
    config: Config, tmp_path: Path, kilobytes: int, kept: str | None
) -> None:
    expected = weights(train(replace(config, output=str(tmp_path / "whole"))))
    disk = tmp_path / "disk"
    config = replace(config, output=str(disk / "out"))
    with small_disk(disk, f"size={kilobytes}k"):
        with pytest.raises(ModelError, match=r"can't be written .* the last whole checkpoint"):
            train(config)
        output = disk / "out"
        assert not (output / "model").exists()
        found = find_last_checkpoint(output / "checkpoints")
        assert (found.name if found else None) == kept
        left = list(output.glob("checkpoints/checkpoint-*"))
        assert all(map(is_whole, left)), "what is half written makes room"
        remount(disk, "size=20m")
        assert same(weights(train(config)), expected)


def test_a_model_that_can_not_be_written(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(training, "write_atomically", fail_for("README.md"))
        with pytest.raises(ModelError, match=r"can't be written \(No space left on device\)"):
            train(config)
    assert [path.name for path in Path(config.output).glob("model*")] == []
    assert load_model(str(train(config)), device="cpu")


def fail_for(name: str) -> Callable[[Path, bytes], None]:
    """Write all files but those of this name."""

    def write(path: Path, content: bytes) -> None:
        if path.name == name:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    return write
