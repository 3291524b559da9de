"""Training for real, on a tiny encoder and a collection that can be learnt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import MultiVectorEncoder
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pseudoquery.cli import main
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.encoding.model import load_model, representation_of
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.windowed_encoder import encode_windowed
from pseudoquery.method.presets import preset
from pseudoquery.search.brute_force import rank_all
from pseudoquery.training import train as training
from pseudoquery.training.batches import BatchMaker, tokenise_sets
from pseudoquery.training.config import Config
from pseudoquery.training.examples import make_training_set, query_key
from pseudoquery.training.negatives import write_negatives
from pseudoquery.training.ranking_losses import distillation_loss
from pseudoquery.training.train import train
from pseudoquery.training.validation import make_validation_set, validate
from tests.support.collection import write_collection, write_scores
from tests.support.training import same, weights, without_dropout


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
    training_set = make_training_set(load_dataset(config.train[0].rpartition(":")[0], "train"))
    twin = {id_: training_set.ids[place ^ 1] for place, id_ in enumerate(training_set.ids)}
    negatives = Path(config.output).parent / "negatives.jsonl"
    write_negatives(
        {query_key(training_set, one): [twin[one.positives[0]]] for one in training_set.examples},
        negatives,
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
        {"loss": {"budgets": [2, 3]}},
        {"loss": {"tokens": 1.0}},
        {"loss": {"signs": 1.0}},
        {"loss": {"tokens": 1.0, "token_scale": 2.0}},
        {"loss": {"vectors": 0.0, "tokens": 1.0}},
        {"loss": {"anchor": 3.0}},
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
    training_set = make_training_set(load_dataset(data, "train"))
    read = tokenise_sets(model, [training_set])
    places, scores = rank_all(
        encode_windowed(model, read.queries[0], "query"),
        encode_windowed(model, read.documents[0], "document"),
        representation_of(model),
        len(training_set.texts),
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
        training_set = make_training_set(load_dataset(data, "train"))
        name = tmp_path / "scores.jsonl"
        write_scores(
            {
                query_key(training_set, example): dict(zip(training_set.ids, row, strict=True))
                for example, row in zip(training_set.examples, wanted.tolist(), strict=True)
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


def mean_similarities(model: MultiVectorEncoder, data: str) -> torch.Tensor:
    """(queries, documents): cosines of mean vectors, times 20."""
    pooling_of(model).representation = preset("single-vector")
    return score_matrix(model, data)


def test_an_anchor_keeps_the_similarities_of_mean_vectors(config: Config, tmp_path: Path) -> None:
    data = str(tmp_path / "set")
    encoder = without_dropout(config.model, tmp_path / "model")
    start = mean_similarities(load_model(encoder, device="cpu"), data)
    config = replace(config, model=encoder, epochs=6.0, evaluate=())
    drifts = []
    for weight in (0.0, 30.0):
        loss = {"tokens": 1.0, "anchor": weight}
        model = train(replace(config, output=str(tmp_path / f"{weight}"), loss=loss))
        found = mean_similarities(load_model(str(model), device="cpu"), data)
        drifts.append(float(distillation_loss(found, start, 1.0)))
    assert drifts[1] < 0.1 * drifts[0]


def test_an_anchor_can_be_another_model_than_the_start(config: Config, tmp_path: Path) -> None:
    """As in a second stage, which starts from a trained model and is held to the published one."""
    config = replace(config, epochs=1.0, evaluate=())
    first = train(replace(config, output=str(tmp_path / "first"), learning_rate=5e-3))
    second = replace(config, model=str(first))
    held: list[dict[str, Any]] = [{"anchor": 5.0}, {"anchor": 5.0, "anchor_model": config.model}]
    results = [
        weights(train(replace(second, output=str(tmp_path / f"{number}"), loss=loss)))
        for number, loss in enumerate(held)
    ]
    assert not same(*results)


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
    main(["train", str(path), "--seed", "7", "--output", str(tmp_path / "seven"), "--json"])
    assert json.loads(capsys.readouterr().out)["model"] == str(tmp_path / "seven" / "model")
    assert json.loads((tmp_path / "seven" / "config.json").read_text())["seed"] == 7
    assert not same(weights(tmp_path / "seven" / "model"), weights(Path(printed["model"])))
    with pytest.raises(SystemExit):
        main(["train", str(path), "--seed", "7"])
    assert "holds a training with another config.json" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(tmp_path / "missing.toml")])
    assert stopped.value.code == 2
    assert "can't be read as a TOML file" in capsys.readouterr().err


def test_tokenised_texts_can_be_shared(config: Config, tmp_path: Path) -> None:
    model = load_model(config.model, device="cpu")
    tokenised = tokenise_sets(
        model, [make_training_set(load_dataset(str(tmp_path / "set"), "train"))]
    )
    expected = weights(train(replace(config, output=str(tmp_path / "alone"))))
    assert same(weights(train(config, tokenised)), expected)
