from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import ModelError
from pseudoquery.training.config import Config
from pseudoquery.training.cross_encoder import load_cross_encoder, score_pairs, write_scores
from pseudoquery.training.examples import make_training_set, query_key
from pseudoquery.training.mine import mine_by_words
from pseudoquery.training.negatives import write_negatives
from pseudoquery.training.teacher import read_scores
from pseudoquery.training.train import train
from tests.support.command import Run
from tests.support.models import assert_one_sentence
from tests.support.training import same, weights


def make_cross_encoder(plain_model_path: Path, folder: Path, labels: int = 1) -> str:
    config = BertConfig.from_pretrained(plain_model_path, num_labels=labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(plain_model_path).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def cross_encoder(plain_model_path: Path, tmp_path: Path) -> str:
    return make_cross_encoder(plain_model_path, tmp_path / "cross-encoder")


def test_right_documents_and_negatives_are_scored(
    cross_encoder: str, config: Config, tmp_path: Path
) -> None:
    training_set = make_training_set(load_dataset(config.train[0].rpartition(":")[0], "train"))
    negatives = dict(mine_by_words([training_set], 2))
    first = training_set.examples[0]
    negatives[query_key(training_set, first)] = ["d3", "unknown", first.positives[0]]
    scores = score_pairs(load_cross_encoder(cross_encoder), training_set, negatives)
    assert len(scores) == len(training_set.examples)
    assert set(scores[query_key(training_set, first)]) == {first.positives[0], "d3"}
    expected = CrossEncoder(cross_encoder).predict([(first.query, training_set.texts["d3"])])
    found = scores[query_key(training_set, first)]["d3"]
    assert found == pytest.approx(float(expected[0]), abs=1e-4)
    write_scores(scores, tmp_path / "scores.jsonl")
    assert read_scores(tmp_path / "scores.jsonl") == scores


def test_the_command_and_a_training_that_learns_from_it(
    run: Run, cross_encoder: str, config: Config, tmp_path: Path
) -> None:
    """The second stage of a training starts from the model of the first, and has a teacher."""
    data, negatives = config.train[0].rpartition(":")[0], tmp_path / "negatives.jsonl"
    training_set = make_training_set(load_dataset(data, "train"))
    write_negatives(mine_by_words([training_set], 4), negatives)
    scores = tmp_path / "scores.jsonl"
    options = ["--split", "train", "--model", cross_encoder, "--negatives", negatives]
    ran = run("score", data, *options, "--out", scores, "--json")
    assert json.loads(ran.out) == {"queries": 24, "scores": 24 * 5}
    assert run("score", data, *options, "--out", scores).out == (
        f"Wrote 120 scores for 24 queries to {scores}.\n"
    )
    every_budget = {"budgets": [2, 3], "tokens": 1.0, "signs": 1.0}
    config = replace(config, loss=every_budget, evaluate=(), epochs=1.0)
    first = train(replace(config, output=str(tmp_path / "first")))
    second = replace(config, model=str(first), first_negatives=str(negatives))
    taught, untaught = (
        weights(train(replace(second, output=str(tmp_path / name), teacher=teacher)))
        for name, teacher in (("taught", str(scores)), ("untaught", ""))
    )
    assert not same(taught, untaught)
    assert not same(untaught, weights(first))


def test_other_models_are_refused(plain_model_path: Path, tmp_path: Path) -> None:
    three = make_cross_encoder(plain_model_path, tmp_path / "three", labels=3)
    (tmp_path / "empty").mkdir()
    for name, message in (
        (three, "gives 3 numbers for a pair"),
        (str(tmp_path / "empty"), "can't be loaded"),
    ):
        with pytest.raises(ModelError, match=message) as error:
            load_cross_encoder(name)
        assert_one_sentence(str(error.value))
