"""What a training warns of, and what it refuses."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.training.checkpoints import find_last_checkpoint
from pseudoquery.training.config import Config
from pseudoquery.training.train import train
from tests.support.collection import write_collection, write_scores


def test_queries_that_a_teacher_left_out_are_counted(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "scores.jsonl"
    config = replace(config, epochs=1.0, teacher=str(path))
    write_scores({"set q0-0": {"d0": 1.0, "d1": 0.0}, "set q0-1": {}}, path)
    train(config)
    assert warnings(caplog) == [f"{path} has no scores for 22 of the 24 queries."]
    write_scores({"q0-0": {"d0": 1.0, "d1": 0.0}}, path)
    with pytest.raises(
        CorpusError, match=r"none of the queries .* by its dataset and its id, as 'set q0-0'"
    ):
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
    held = {"anchor": 1.0, "anchor_model": str(other)}
    with pytest.raises(ModelError, match=r"the anchor '.*' has another vocabulary than the model"):
        train(replace(config, output=str(tmp_path / "held"), loss=held))


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
