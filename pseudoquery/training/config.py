"""The settings of a training, as a TOML file gives them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from pseudoquery.corpus.datasets import BUNDLED, Dataset, load_dataset
from pseudoquery.errors import CorpusError, ModelError

PRECISIONS = ("float32", "bf16", "fp16")
LOWEST = {
    "batch_size": 1,
    "document_tokens": 1,
    "mine_depth": 1,
    "neighbours": 1,
    "queries_per_document": 1,
    "save_steps": 1,
    "distillation": 0,
    "evaluate_steps": 0,
    "max_gradient_norm": 0,
    "mini_batch": 0,
    "negatives": 0,
    "refresh_steps": 0,
    "seed": 0,
    "start_weight": 0,
    "warmup": 0,
    "weight_decay": 0,
}
ABOVE_ZERO = ("epochs", "learning_rate", "teacher_temperature")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a training, as a TOML file gives them; the defaults are the paper's."""

    output: str
    train: tuple[str, ...]
    """Datasets as FOLDER:SPLIT."""
    evaluate: tuple[str, ...] = ()
    model: str = "minilm"
    preset: str = "recommended"
    representation: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the preset."""
    negatives: int = 4
    first_negatives: str = "bm25"
    """Where the first negatives come from: "bm25", "model", "random", or a file of them."""
    refresh_steps: int = 0
    """Mine new negatives with the model in training every so many steps; 0 for never."""
    mine_depth: int = 50
    """How many of the best-ranked wrong documents are drawn from."""
    epochs: float = 1.0
    batch_size: int = 16
    """Documents that answer something, in each batch; several processes share it."""
    queries_per_document: int = 1
    """At most so many of the queries that a document answers are asked of it at once."""
    neighbours: int = 1
    """Fill batches with blocks of so many documents that the first negatives show to be mistaken
    for each other; 1 for no blocks."""
    mini_batch: int = 0
    """Cache gradients, embedding this many texts at a time; 0 for no caching."""
    learning_rate: float = 2e-6
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    start_weight: float = 0.0
    """In the end, mix so much of the starting weights back in: the model then keeps more of what it
    could do before (Wortsman et al., 2022)."""
    precision: str = "float32"
    document_tokens: int = 512
    """What is read of a document; more than the encoder reads at once goes through windows."""
    teacher: str = ""
    """Learn from this too: a model's folder, or a .jsonl file with the scores of any scorer, as
    {"query": "SET ID", "scores": {document id: number}} a line."""
    distillation: float = 1.0
    """The weight of the teacher beside the right answers."""
    teacher_temperature: float = 1.0
    save_steps: int = 500
    evaluate_steps: int = 0
    """Also evaluate every so many steps; 0 for only at the end."""
    seed: int = 0


def read_config(path: Path) -> Config:
    """Read a TOML file; a key that is not a setting is refused, so that no typing error is lost."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ModelError(f"{path} can't be read as a TOML file ({error}).") from error
    known = {one.name for one in fields(Config)}
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
    """Refuse a setting of another type, or out of its range, before hours are spent."""
    for one in fields(Config):
        value = getattr(config, one.name)
        if not _is(value, str(one.type)):
            raise ModelError(f"{one.name} is {value!r}; it must be {_KINDS[str(one.type)][0]}.")
        if one.name in LOWEST and not value >= LOWEST[one.name]:
            raise ModelError(f"{one.name} is {value!r}; it must be at least {LOWEST[one.name]}.")
        if one.name in ABOVE_ZERO and not value > 0:
            raise ModelError(f"{one.name} is {value!r}; it must be above 0.")
    if config.precision not in PRECISIONS:
        raise ModelError(
            f"precision is {config.precision!r}; choose one of {', '.join(PRECISIONS)}."
        )
    if config.start_weight > 1:
        raise ModelError(f"start_weight is {config.start_weight!r}; it must be at most 1.")
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
        raise ModelError("evaluate_steps needs a set to evaluate on; give evaluate, too.")


_KINDS: dict[str, tuple[str, Any]] = {
    "str": ("a text", str),
    "int": ("an integer", int),
    "float": ("a number", int | float),
    "tuple[str, ...]": ("a list of texts", tuple),
    "Mapping[str, Any]": ("a table", Mapping),
}


def _is(value: object, kind: str) -> bool:
    """Say whether a value from a TOML file fits a setting's type."""
    parts = value if isinstance(value, tuple) else ()
    return (
        isinstance(value, _KINDS[kind][1])
        and not isinstance(value, bool)
        and all(isinstance(one, str) for one in parts)
    )


def load_named_dataset(name: str) -> Dataset:
    """Load a dataset given as FOLDER:SPLIT, or as irds: and an ir_datasets id."""
    if name.startswith("irds:"):
        return load_dataset(name, "")
    folder, colon, split = name.rpartition(":")
    if not colon:
        raise CorpusError(f"{name!r} should name a dataset and its split, as FOLDER:SPLIT.")
    return load_dataset(folder, split)


def short_name(name: str) -> str:
    """Name a dataset without the place where it lies."""
    if name.startswith("irds:"):
        return name
    folder, _, split = name.rpartition(":")
    return f"{Path(folder).absolute().name}:{split}"


def dataset_folder(name: str) -> Path:
    """Find where a dataset lies."""
    place = name.rpartition(":")[0]
    return Path(str(files("pseudoquery") / "data" / place)) if place in BUNDLED else Path(place)
