"""Training for real, on a tiny encoder and a collection that can be learnt."""

from __future__ import annotations

import json
import logging
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

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import MultiVectorEncoder
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import BertConfig, BertModel

from pseudoquery.cli import main
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.encoding.model import load_model, representation_of
from pseudoquery.encoding.windowed_encoder import encode_windowed
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.method.presets import preset
from pseudoquery.search.brute_force import rank_all
from pseudoquery.training import train as training
from pseudoquery.training.batches import BatchMaker, tokenise_sets
from pseudoquery.training.checkpoints import find_last_checkpoint, is_whole
from pseudoquery.training.config import Config
from pseudoquery.training.examples import make_training_set, query_key
from pseudoquery.training.loss import distillation_loss
from pseudoquery.training.negatives import write_negatives
from pseudoquery.training.train import train
from pseudoquery.training.trainer import RetrievalTrainer
from pseudoquery.training.validation import make_validation_set, validate
from tests.support.collection import write_collection, write_scores
from tests.support.disks import remount, small_disk


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


def scalars(output: str) -> dict[str, list[float]]:
    """What TensorBoard would show."""
    (events,) = Path(output).rglob("events.out.tfevents.*")
    curves = EventAccumulator(str(events))
    curves.Reload()
    return {name: [one.value for one in curves.Scalars(name)] for name in curves.Tags()["scalars"]}


def test_training_makes_the_model_better(config: Config, tmp_path: Path) -> None:
    config = replace(config, epochs=40.0, learning_rate=3e-3, refresh_steps=80, save_steps=1000)
    finished = train(config)
    dev = load_dataset(str(tmp_path / "set"), "dev")
    start = load_model(config.model, device="cpu")
    before = validate(start, make_validation_set(start, dev))
    model = load_model(str(finished), device="cpu")
    after = validate(model, make_validation_set(model, dev))
    assert after["RR@10"] > before["RR@10"] + 0.3
    saved = json.loads((Path(config.output) / "figures.json").read_text())
    assert saved[config.evaluate[0]] == pytest.approx(after)
    assert (representation_of(model).k, representation_of(model).scale) == (3, 10.0)
    assert json.loads((Path(config.output) / "config.json").read_text())["epochs"] == 40.0
    assert len(json.loads((Path(config.output) / "data.json").read_text())["set:train"]) == 64
    names = sorted(path.name for path in (Path(config.output) / "negatives").iterdir())
    assert names == ["00000000.jsonl", "00000080.jsonl", "00000160.jsonl"]
    mined = [(Path(config.output) / "negatives" / name).read_text() for name in names]
    assert len(set(mined)) == 3, "every refresh mines with another model"
    assert not list(finished.rglob("*.bin"))
    card = ModelCard.load(finished / "README.md")
    assert f"| set:dev | {100 * after['RR@10']:.2f} |" in card.text
    curves = scalars(config.output)
    assert len(curves["train/loss"]) == 24
    assert curves["train/loss"][-1] < curves["train/loss"][0]
    assert len(curves["train/max_r"]) == len(curves["train/var_r"]) == 24, "Figure 2"


def test_figures_on_the_way(config: Config, capfd: pytest.CaptureFixture[str]) -> None:
    train(replace(config, evaluate_steps=6))
    curves = scalars(config.output)
    figures = json.loads((Path(config.output) / "figures.json").read_text())[config.evaluate[0]]
    for measure in ("RR@10", "nDCG@10"):
        assert len(curves[f"eval/set:dev_{measure}"]) == 3
        assert curves[f"eval/set:dev_{measure}"][-1] == pytest.approx(figures[measure])
    state = Path(config.output) / "checkpoints" / "checkpoint-18" / "trainer_state.json"
    logged = json.loads(state.read_text())["log_history"]
    assert [one["step"] for one in logged if "eval_set:dev_RR@10" in one] == [6, 12, 18]
    shown = capfd.readouterr()
    assert shown.out == "", "the output is for the result"
    assert "loss=" in shown.err
    assert f"step 18: set:dev_RR@10 {100 * figures['RR@10']:.2f}, set:dev_nDCG@10" in shown.err
    for noise in ("Writing model shards", "widget examples", "Loading weights", "{"):
        assert noise not in shown.err


# --- a training that is stopped goes on


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


# --- what is learnt from


def test_a_batch_is_of_one_dataset(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_collection(tmp_path / "other")
    config = replace(config, train=(*config.train, f"{other}:dev"), evaluate=())
    seen: list[set[int]] = []
    draw = BatchMaker.make_batch

    def watched(self: BatchMaker, rows: list[int], step: int = 0) -> dict[str, Any]:
        seen.append({self.rows[row].set_position for row in rows})
        batch = draw(self, rows, step)
        assert {int(position) // 12 for position in batch["label"]["documents"]} == seen[-1]
        return batch

    monkeypatch.setattr(BatchMaker, "make_batch", watched)
    train(config)
    assert all(len(positions) == 1 for positions in seen)
    counts = [seen.count({0}), seen.count({1})]
    assert counts == [18, 9], "in proportion to their sizes: 24 and 12 rows, three times"
    assert seen[:18] != sorted(seen[:18], key=str), "mixed"


def test_a_batch_is_of_neighbours(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document is mistaken for one other: the two are always in the same batch."""
    own = make_training_set(load_dataset(config.train[0].rpartition(":")[0], "train"))
    twin = {id_: own.ids[place ^ 1] for place, id_ in enumerate(own.ids)}
    negatives = Path(config.output).parent / "negatives.jsonl"
    write_negatives(
        {query_key(own, one): [twin[one.positives[0]]] for one in own.examples}, negatives
    )
    batches: list[list[str]] = []
    draw = BatchMaker.make_batch

    def watched(self: BatchMaker, rows: list[int], step: int = 0) -> dict[str, Any]:
        batches.append([self.rows[row].positive for row in rows])
        return draw(self, rows, step)

    monkeypatch.setattr(BatchMaker, "make_batch", watched)
    train(replace(config, neighbours=2, first_negatives=str(negatives), evaluate=()))
    assert len(batches) == 18
    for batch in batches:
        assert sorted(batch) == sorted(twin[id_] for id_ in batch)


def test_starting_weights_are_mixed_in(config: Config, tmp_path: Path) -> None:
    start, trained, mixed = (
        weights(train(replace(config, output=str(tmp_path / f"{share}"), start_weight=share)))
        for share in (1.0, 0.0, 0.25)
    )
    assert same(start, dict(training.load_starting_model(config).cpu().state_dict()))
    assert not same(start, trained)
    for name, value in mixed.items():
        torch.testing.assert_close(value, 0.75 * trained[name] + 0.25 * start[name])


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
        {"queries_per_document": 2},
        {"teacher": config.model},
    )
    for number, change in enumerate(changes):
        changed: dict[str, Any] = {"output": str(tmp_path / f"change{number}"), **change}
        assert not same(weights(train(replace(config, **changed))), first), change
    taught = replace(config, teacher=config.model)
    second = weights(tmp_path / f"change{len(changes) - 1}" / "model")
    for number, change in enumerate(({"distillation": 3.0}, {"teacher_temperature": 4.0})):
        changed = {"output": str(tmp_path / f"taught{number}"), **change}
        assert not same(weights(train(replace(taught, **changed))), second), change
    untaught: dict[str, Any] = {"output": str(tmp_path / "untaught"), "distillation": 0.0}
    assert same(weights(train(replace(taught, **untaught))), first)


def score_matrix(model: MultiVectorEncoder, data: str) -> torch.Tensor:
    """(queries, documents): how a model scores all of a collection."""
    own = make_training_set(load_dataset(data, "train"))
    read = tokenise_sets(model, [own])
    places, scores = rank_all(
        encode_windowed(model, read.queries[0], "query"),
        encode_windowed(model, read.documents[0], "document"),
        representation_of(model),
        len(own.texts),
    )
    matrix = np.empty_like(scores)
    np.put_along_axis(matrix, places, scores, axis=1)
    return torch.from_numpy(matrix)


@pytest.mark.parametrize("kind", ["model", "file"])
def test_a_teacher_is_followed(config: Config, tmp_path: Path, kind: str) -> None:
    data = str(tmp_path / "set")
    teacher = load_model(config.model, preset("late-interaction", scale=2.0), device="cpu")
    wanted = score_matrix(teacher, data)
    if kind == "model":
        teacher.save_pretrained(str(tmp_path / "teacher"), create_model_card=False)
        name = tmp_path / "teacher"
    else:
        own = make_training_set(load_dataset(data, "train"))
        name = tmp_path / "scores.jsonl"
        write_scores(
            {
                query_key(own, example): dict(zip(own.ids, row, strict=True))
                for example, row in zip(own.examples, wanted.tolist(), strict=True)
            },
            name,
        )
    config = replace(config, epochs=12.0, learning_rate=2e-3, first_negatives="random")

    def disagreement(taught: Config) -> float:
        model = load_model(str(train(taught)), device="cpu")
        return float(distillation_loss(score_matrix(model, data), wanted, 1.0))

    alone = disagreement(replace(config, output=str(tmp_path / "alone")))
    taught = disagreement(replace(config, teacher=str(name), distillation=10.0))
    assert taught < 0.5 * alone


def test_queries_that_a_teacher_left_out_are_counted(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "scores.jsonl"
    config = replace(config, epochs=1.0, teacher=str(path))
    write_scores({"set q0-0": {"d0": 1.0, "d1": 0.0}, "set q0-1": {}}, path)
    train(config)
    assert warnings(caplog) == [f"{path} has no scores for 22 of the 24 queries."]
    write_scores({"q0-0": {"d0": 1.0, "d1": 0.0}}, path)
    with pytest.raises(CorpusError, match=r"none of the queries .* they are named as 'set q0-0'"):
        train(replace(config, output=str(tmp_path / "other")))


def test_a_teacher_with_another_vocabulary_is_refused(
    config: Config, plain_model_path: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(plain_model_path, tmp_path / "teacher")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["king"], vocabulary["queen"] = vocabulary["queen"], vocabulary["king"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match=r"has another vocabulary than the model; write its scor"):
        train(replace(config, teacher=str(other)))


# --- what is wrong


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("pseudoquery.training") and record.levelno == logging.WARNING
    ]


def test_what_is_missing_is_counted(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(config, epochs=1.0)
    train(replace(config, output=str(tmp_path / "sound")))
    train(replace(config, output=str(tmp_path / "random"), first_negatives="random"))
    assert warnings(caplog) == []
    rows = [{"query": f"set q{n}-{m}", "negatives": ["d5"]} for n in range(12) for m in range(2)]
    rows[0]["negatives"] = []
    rows[1]["negatives"] = ["nothing", "d5", "unknown"]
    path = tmp_path / "negatives.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:-2]))
    with (tmp_path / "set" / "qrels" / "train.tsv").open("a") as file:
        file.write("q0-2\td0\t0\n")  # a query that no document answers
    train(replace(config, first_negatives=str(path)))
    told = warnings(caplog)
    assert told[0] == "set: no document answers 1 of its 25 queries, so training leaves those out."
    assert told[1].endswith(
        "00000000.jsonl: queries without negatives: 3; negatives that are not in the corpus: 2. "
        "Random documents are used instead."
    )
    assert len(told) == 2


def test_a_folder_of_another_training_is_refused(config: Config, tmp_path: Path) -> None:
    config = replace(config, epochs=1.0)
    train(config)
    with pytest.raises(ModelError, match=r"holds a training with another config\.json"):
        train(replace(config, learning_rate=1.0))
    corpus = tmp_path / "set" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("king", "queen"))
    with pytest.raises(ModelError, match=r"holds a training with another data\.json"):
        train(config)


def test_too_few_documents_for_a_batch(config: Config) -> None:
    with pytest.raises(CorpusError, match="there are 24 documents to learn from, fewer than"):
        train(replace(config, batch_size=25))
    with pytest.raises(CorpusError, match="there are 12 documents to learn from, fewer than"):
        train(replace(config, batch_size=13, queries_per_document=2, output=config.output + "2"))


def test_two_sets_of_the_same_name(config: Config, tmp_path: Path) -> None:
    other = write_collection(tmp_path / "elsewhere" / "set")
    with pytest.raises(CorpusError, match="two of the datasets to train on are called 'set:train'"):
        train(replace(config, train=(*config.train, f"{other}:train")))
    train(replace(config, train=(f"{other}:train", f"{other}:dev"), epochs=1.0))
    assert len(json.loads((Path(config.output) / "data.json").read_text())) == 2


def test_a_loss_that_is_not_a_number_stops_the_training(config: Config) -> None:
    with pytest.raises(ModelError, match=r"the loss is (nan|inf) at step"):
        train(replace(config, learning_rate=1e30, epochs=5.0, save_steps=1000))


def test_weights_that_are_not_numbers_are_not_saved(config: Config) -> None:
    with pytest.raises(ModelError, match="a weight is not a number at step 6"):
        train(replace(config, learning_rate=1e30))
    assert find_last_checkpoint(Path(config.output) / "checkpoints") is None


def test_settings_are_checked_before_anything_is_done(config: Config) -> None:
    with pytest.raises(ModelError, match="epochs is 0; it must be above 0"):
        train(replace(config, epochs=0))
    assert not Path(config.output).exists()


def test_a_missing_package_is_told(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModelError, match=r"run: pip install 'pseudoquery\[train\]'"):
        train(config)


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


# --- disks


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


# --- the commands


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
        "epochs = 1.0\nbatch_size = 4\nevaluate_steps = 3\n[representation]\nk = 2\n"
    )
    main(["train", str(path), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["model"] == str(Path(config.output) / "model")
    assert set(printed["figures"]) == set(config.evaluate)
    assert load_model(printed["model"], device="cpu")
    main(["train", str(path)])
    assert f"The model is in {printed['model']}." in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(tmp_path / "missing.toml")])
    assert stopped.value.code == 2
    assert "can't be read as a TOML file" in capsys.readouterr().err


def test_material_can_be_shared(config: Config, tmp_path: Path) -> None:
    model = load_model(config.model, device="cpu")
    tokenised = tokenise_sets(
        model, [make_training_set(load_dataset(str(tmp_path / "set"), "train"))]
    )
    expected = weights(train(replace(config, output=str(tmp_path / "alone"))))
    assert same(weights(train(config, tokenised)), expected)
