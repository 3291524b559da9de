"""The settings of a training, which a TOML file gives."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from pseudoquery.corpus.datasets import BUNDLED, Dataset, load_dataset
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.training.loss_settings import LossSettings, make_loss_settings
from pseudoquery.training.rules import (
    Amount,
    Count,
    PositiveAmount,
    PositiveCount,
    Precision,
    Share,
    check_settings,
)

LATER = ("loss", "weights")
"""Settings that came later: where they are empty, a training is what it was before them."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a training; the defaults are the paper's.

    `read_config` makes one from a TOML file, whose keys are the names below.

    >>> Config(output="runs/first", train=("data/nq:train",), epochs=2).batch_size
    16
    """

    output: str
    """The folder of the training: settings, checkpoints, logs, and in the end the model."""
    train: tuple[str, ...]
    """The datasets to learn from, each as FOLDER:SPLIT, or as irds: and an ir_datasets id."""
    evaluate: tuple[str, ...] = ()
    """The datasets to evaluate the model on, named in the same way."""
    model: str = "minilm"
    """The model to start from: a name, a folder, or an id on the Hugging Face Hub."""
    preset: str = "recommended"
    """How documents and queries become vectors: the name of a preset."""
    representation: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the preset, such as {"k": 8}."""
    loss: Mapping[str, Any] = field(default_factory=dict)
    """What the loss is made of, such as {"budgets": [4, 8, 16], "signs": 1.0}: the fields of
    `LossSettings`."""
    weights: Mapping[str, Any] = field(default_factory=dict)
    """How often an epoch goes through each dataset, such as {"nq:train": 0.5}; 1 where it says
    nothing."""
    negatives: Count = 4
    """How many wrong documents each document in a batch brings along."""
    first_negatives: str = "bm25"
    """Where the first negatives come from: "bm25", "model", "random", or a file of them."""
    refresh_steps: Count = 0
    """Every so many steps, mine new negatives with the model in training; 0 for never."""
    mine_depth: PositiveCount = 50
    """How many wrong documents are mined for each query; a batch draws from them."""
    epochs: PositiveAmount = 1.0
    """How often the training goes through its datasets."""
    batch_size: PositiveCount = 16
    """How many documents that answer a query are in each batch; several processes share it."""
    queries_per_document: PositiveCount = 1
    """How many of the queries that a document answers are learnt from at once, at most."""
    neighbours: PositiveCount = 1
    """Fill batches with blocks of so many documents that are easily mistaken for each other, as the
    first negatives show; 1 for no blocks."""
    mini_batch: Count = 0
    """Save memory: encode so many texts at a time, and cache gradients; 0 for no caching."""
    learning_rate: PositiveAmount = 2e-6
    """The highest learning rate, reached after the warmup."""
    warmup: Amount = 0.1
    """How long the learning rate rises: a share of all steps or, from 1 on, a number of steps."""
    weight_decay: Amount = 0.01
    """How strongly weights are pulled towards zero."""
    max_gradient_norm: Amount = 1.0
    """Gradients with a larger norm are scaled down to this one; 0 for no limit."""
    start_weight: Share = 0.0
    """How much of the starting weights is mixed into the finished model, which then keeps more of
    what it could do before (Wortsman et al., 2022)."""
    precision: Precision = "float32"
    """What the encoder computes in: "float32", "bf16" or "fp16"."""
    document_tokens: PositiveCount = 512
    """How many tokens of a document are read; the encoder reads a longer text in windows."""
    teacher: str = ""
    """Also learn from a teacher: the folder of a model, or a .jsonl file with the scores of any
    scorer, one {"query": "SET ID", "scores": {document id: number}} a line."""
    distillation: Amount = 1.0
    """The weight of the teacher's scores beside the right answers."""
    teacher_temperature: PositiveAmount = 1.0
    """The teacher's scores are divided by this: a higher temperature makes them softer."""
    save_steps: PositiveCount = 500
    """Write a checkpoint every so many steps."""
    evaluate_steps: Count = 0
    """Also evaluate every so many steps; 0 for only at the end."""
    seed: Count = 0
    """The seed of all random numbers: the same seed makes the same model."""


def read_config(path: Path) -> Config:
    """Read a TOML file and check it; an unknown key is an error, so that no typo goes unnoticed."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ModelError(f"{path} can't be read as a TOML file ({error}).") from error
    known = {setting.name for setting in fields(Config)}
    if unknown := sorted(set(values) - known):
        raise ModelError(
            f"{path}: there is no setting {unknown[0]!r}; there are {', '.join(sorted(known))}."
        )
    for name in ("train", "evaluate"):
        if isinstance(values.get(name), list):
            values[name] = tuple(values[name])
    for name in ("output", "train"):
        if not values.get(name):
            raise ModelError(f"{path}: the setting {name!r} is missing.")
    config = Config(**values)
    try:
        check_config(config)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return config


def check_config(config: Config) -> None:
    """Raise an error for the first bad setting, before hours are spent on a training."""
    check_settings(config)
    if config.batch_size % config.neighbours:
        raise ModelError(
            f"blocks of {config.neighbours} neighbours don't fill a batch of {config.batch_size}; "
            "make batch_size a multiple of neighbours."
        )
    if config.neighbours > 1 and config.first_negatives == "random":
        raise ModelError(
            "random negatives don't show which documents are neighbours; choose other "
            "first_negatives, or neighbours = 1."
        )
    if config.evaluate_steps and not config.evaluate:
        raise ModelError("evaluate_steps needs a dataset to evaluate on; give evaluate, too.")
    _check_weights(config)
    loss_settings(config)


def _check_weights(config: Config) -> None:
    names = [short_name(name) for name in config.train]
    for name, weight in config.weights.items():
        if name not in names:
            raise ModelError(
                f"weights names {name!r}, which is not trained on; name one of {', '.join(names)}."
            )
        if type(weight) not in (int, float) or not 0 < weight < math.inf:
            raise ModelError(f"the weight of {name} is {weight!r}; it must be a number above 0.")


def trained_representation(config: Config) -> Representation:
    """Return how the model of a training makes vectors."""
    return preset(config.preset, **config.representation)


def loss_settings(config: Config) -> LossSettings:
    """Return what the loss of a training is made of."""
    return make_loss_settings(config.loss, trained_representation(config))


def describe_settings(config: Config) -> dict[str, Any]:
    """Return all settings as plain values, but for those that came later and are not used."""
    return {name: value for name, value in asdict(config).items() if name not in LATER or value}


def load_named_dataset(name: str) -> Dataset:
    """Load a dataset given as FOLDER:SPLIT, or as irds: and an ir_datasets id."""
    if name.startswith("irds:"):
        return load_dataset(name, "")
    folder, colon, split = name.rpartition(":")
    if not colon:
        raise CorpusError(f"{name!r} should name a dataset and its split, as FOLDER:SPLIT.")
    return load_dataset(folder, split)


def short_name(name: str) -> str:
    """Name a dataset by the last part of its folder, without the folders above.

    >>> short_name("/home/me/data/nq:train")
    'nq:train'
    """
    if name.startswith("irds:"):
        return name
    folder, _, split = name.rpartition(":")
    return f"{Path(folder).absolute().name}:{split}"


def dataset_folder(name: str) -> Path:
    """Return the folder of a dataset given as FOLDER:SPLIT; that of a bundled one is ours."""
    folder = name.rpartition(":")[0]
    return Path(str(files("pseudoquery") / "data" / folder)) if folder in BUNDLED else Path(folder)
