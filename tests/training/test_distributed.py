"""Several processes that train together, on this machine and without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.encoding.model import load_model
from pseudoquery.method.presets import preset
from pseudoquery.training.batches import BatchMaker, tokenise_sets
from pseudoquery.training.checkpoints import is_whole
from pseudoquery.training.config import read_config
from pseudoquery.training.distributed import are_connected, is_first, process_count, wait_for_all
from pseudoquery.training.examples import make_training_set
from pseudoquery.training.loss import CachedRankingLoss, Guides, RankingLoss
from pseudoquery.training.loss_settings import LossSettings
from pseudoquery.training.objective import ANCHORED, make_objective
from pseudoquery.training.ranking_losses import Distillation
from pseudoquery.training.teacher import Teacher
from pseudoquery.training.train import train
from tests.support.collection import write_collection
from tests.support.training import same, weights, without_dropout

ROWS = [0, 3, 5, 8]
KINDS = ("plain", "cached", "taught", "late interaction", "every budget", "cached budgets")
EVERY_BUDGET = LossSettings((2, 3, 4), tokens=0.5, signs=2.0, anchor=3.0)


def test_one_process_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_first()
    assert process_count() == 1
    assert not are_connected()
    wait_for_all()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert not is_first()
    assert process_count() == 3


# --- the gradient


def gradient(model_path: str, data: str, kind: str, rows: list[int]) -> dict[str, Tensor]:
    """What some rows of a batch teach; rows have one or two queries each."""
    name = "late-interaction" if kind == "late interaction" else "recommended"
    model = load_model(model_path, preset(name, k=3), device="cpu").eval()
    training_set = make_training_set(load_dataset(data, "train"))
    batch_maker = BatchMaker(
        tokenise_sets(model, [training_set]), negatives=1, queries_per_document=2
    )
    rest = batch_maker.rows[3]
    batch_maker.rows[3] = type(rest)(rest.set_position, rest.positive, rest.examples[:1])
    batch = batch_maker.make_batch(rows)
    features = [
        {key.removeprefix(side): value for key, value in batch.items() if key.startswith(side)}
        for side in ("query_", "documents_")
    ]
    how, guides, settings = Distillation(), Guides(), LossSettings()
    if kind == "taught":
        late = load_model(model_path, preset("late-interaction"), device="cpu")
        how, guides = Distillation(2.0), Guides(Teacher(late))
    if "budget" in kind:
        anchor = load_model(model_path, ANCHORED, device="cpu")
        settings, guides = EVERY_BUDGET, Guides(anchor=Teacher(anchor))
        with torch.no_grad():  # else the model is its own anchor
            for value in model.parameters():
                value.mul_(1.1)
    objective = make_objective(model, settings, how)
    loss = (
        CachedRankingLoss(model, 2, objective, guides)
        if "cached" in kind
        else RankingLoss(model, objective, guides)
    )
    loss(features, batch["label"]).backward()
    return _gradients(model)


def _gradients(model: MultiVectorEncoder) -> dict[str, Tensor]:
    return {
        name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None
    }


def share_the_batch(rank: int, folder: str, model_path: str, data: str) -> None:
    """What each of two processes does: half of the rows, and the mean of both gradients."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    for kind in KINDS:
        found = gradient(model_path, data, kind, ROWS[2 * rank : 2 * rank + 2])
        for one in found.values():
            torch.distributed.all_reduce(one)
            one /= 2
        if rank == 0:
            torch.save(found, f"{folder}/{kind}")
    torch.distributed.destroy_process_group()


def test_two_processes_with_half_the_batch_have_the_gradient_of_one(
    tmp_path: Path, tiny_model_path: str
) -> None:
    data = str(write_collection(tmp_path / "set"))
    spawn(share_the_batch, (str(tmp_path), tiny_model_path, data), nprocs=2)  # type: ignore[no-untyped-call]
    for kind in KINDS:
        expected = gradient(tiny_model_path, data, kind, ROWS)
        found = torch.load(tmp_path / kind)
        assert found.keys() == expected.keys()
        assert any(bool(one.any()) for one in expected.values())
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)


# --- the command


def write_config(folder: Path, model: str, output: str) -> Path:
    path = folder / f"{output}.toml"
    path.write_text(
        f"output = {str(folder / output)!r}\nmodel = {model!r}\n"
        f"train = ['{folder}/set:train', '{folder}/other:dev']\nevaluate = ['{folder}/set:dev']\n"
        "negatives = 2\nepochs = 2.0\nbatch_size = 4\nlearning_rate = 1e-3\nrefresh_steps = 4\n"
        "save_steps = 4\nevaluate_steps = 9\nqueries_per_document = 2\n[representation]\nk = 3\n"
    )
    return path


def together(path: Path, count: int = 2) -> subprocess.Popen[str]:
    """Start the command in several processes."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={count}", "-m", "pseudoquery.cli", "train", str(path), "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def kill_all(starter: int) -> None:
    """Kill what started the processes, and then them; each has a session of its own."""
    started = Path(f"/proc/{starter}/task/{starter}/children").read_text().split()
    for process in (starter, *map(int, started)):
        os.kill(process, signal.SIGKILL)


def losses(checkpoint: Path) -> list[float]:
    logged = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [one["loss"] for one in logged if "loss" in one]


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path, tiny_model_path: str) -> None:
    for name in ("set", "other"):
        write_collection(tmp_path / name)
    model = without_dropout(tiny_model_path, tmp_path / "model")
    started = together(write_config(tmp_path, model, "two"))
    _, said = started.communicate(timeout=300)
    assert started.returncode == 0, said
    train(read_config(write_config(tmp_path, model, "one")))
    found, expected = (
        losses(tmp_path / name / "checkpoints" / "checkpoint-12") for name in ("two", "one")
    )
    assert len(expected) == 1
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path, tiny_model_path: str) -> None:
    for name in ("set", "other"):
        write_collection(tmp_path / name)
    whole = together(write_config(tmp_path, tiny_model_path, "whole"))
    printed, said = whole.communicate(timeout=300)
    assert whole.returncode == 0, said
    report = json.loads(printed)  # of the first process alone
    assert report["model"] == str(tmp_path / "whole" / "model")
    assert report["figures"][f"{tmp_path}/set:dev"]["R@1000"] == 1.0
    negatives = sorted(path.name for path in (tmp_path / "whole" / "negatives").iterdir())
    assert negatives == ["00000000.jsonl", "00000004.jsonl", "00000008.jsonl"]
    assert len(list((tmp_path / "whole").rglob("events.out.tfevents.*"))) == 1
    last = tmp_path / "whole" / "checkpoints" / "checkpoint-12"
    assert is_whole(last)
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in last.iterdir()}

    path = write_config(tmp_path, tiny_model_path, "killed")
    killed = together(path)
    wanted = tmp_path / "killed" / "checkpoints" / "checkpoint-8" / "whole.json"
    while not wanted.exists() and killed.poll() is None:
        time.sleep(0.001)
    kill_all(killed.pid)
    killed.communicate()
    assert not (tmp_path / "killed" / "model").exists()
    again = together(path)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert same(weights(tmp_path / "killed" / "model"), weights(tmp_path / "whole" / "model"))


@pytest.mark.slow
def test_a_batch_that_can_not_be_shared(tmp_path: Path, tiny_model_path: str) -> None:
    for name in ("set", "other"):
        write_collection(tmp_path / name)
    path = write_config(tmp_path, tiny_model_path, "out")
    path.write_text(path.read_text().replace("batch_size = 4", "batch_size = 5"))
    started = together(path)
    _, said = started.communicate(timeout=300)
    assert started.returncode != 0
    assert "the 2 processes can't share a batch of 5 equally; make batch_size a multiple" in said
