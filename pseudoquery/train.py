"""Training on sentence-transformers' trainer, with hard negatives that are refreshed on the way.

One folder holds a whole training: config.json (the settings in force), data.json (checksums of what
was learnt from), negatives/STEP.jsonl, checkpoints, logs, and at the end the model. Run again after
a kill, it goes on from the last checkpoint and ends where an uninterrupted run would have.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import (
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
)
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pseudoquery.course import Course
from pseudoquery.datasets import Dataset, load_dataset
from pseudoquery.encoding import document_text
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.evaluate import means
from pseudoquery.exhaustive import rank_all
from pseudoquery.loss import CachedRankingLoss, RankingLoss
from pseudoquery.mine import encode_all, mine, mine_by_words
from pseudoquery.model import load_model, representation_of
from pseudoquery.representation import preset
from pseudoquery.segments import write_durably
from pseudoquery.trial import judge
from pseudoquery.triples import Lesson, Negatives, lesson, read_negatives, write_negatives

MEASURED_DEPTH = 1000
PRECISIONS = ("float32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a training, as a TOML file gives them; the defaults are the paper's."""

    output: str
    train: tuple[str, ...]
    """Datasets as FOLDER:SPLIT."""
    evaluate: tuple[str, ...] = ()
    model: str = "default"
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
    mini_batch: int = 0
    """Cache gradients, embedding this many texts at a time; 0 for no caching."""
    learning_rate: float = 2e-6
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    precision: str = "float32"
    document_tokens: int = 512
    save_steps: int = 500
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
        if name in values:
            values[name] = tuple(values[name])
    for name in ("output", "train"):
        if not values.get(name):
            raise ModelError(f"{path}: the setting {name!r} is missing.")
    config = Config(**values)
    if config.precision not in PRECISIONS:
        raise ModelError(
            f"{path}: precision is {config.precision!r}; choose one of {', '.join(PRECISIONS)}."
        )
    return config


def load_named(name: str) -> Dataset:
    """Load a dataset given as FOLDER:SPLIT."""
    folder, colon, split = name.rpartition(":")
    if not colon:
        raise CorpusError(f"{name!r} should name a dataset and its split, as FOLDER:SPLIT.")
    return load_dataset(folder, split)


def train(config: Config) -> Path:
    """Carry out a training, or the rest of one; returns the folder of the finished model."""
    datasets = _trainer_library()
    folder = Path(config.output)
    lessons = [lesson(load_named(name)) for name in config.train]
    _begin(folder, config, lessons)
    model = load_model(config.model, preset(config.preset, **config.representation))
    model.max_seq_length = min(
        model.max_seq_length or config.document_tokens, config.document_tokens
    )
    course = Course(
        lessons,
        model.tokenizer,
        negatives=config.negatives,
        tokens=config.document_tokens,
        seed=config.seed,
    )
    if len(course.rows) < config.batch_size:
        raise CorpusError(
            f"there are {len(course.rows)} queries to learn from, fewer than one batch of "
            f"{config.batch_size}; lower batch_size."
        )
    loss = CachedRankingLoss(model, config.mini_batch) if config.mini_batch else RankingLoss(model)
    trainer = MultiVectorEncoderTrainer(
        model=model,
        args=_arguments(config, folder),
        train_dataset=datasets.Dataset.from_dict({"row": list(range(len(course.rows)))}),
        loss=loss,
        data_collator=cast(Any, course),
        callbacks=[Refresh(course, config, folder, model), Statistics(loss)],
    )
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    finished = folder / "model"
    model.save_pretrained(str(finished))
    figures = {name: measure(model, load_named(name)) for name in config.evaluate}
    write_durably(folder / "figures.json", json.dumps(figures, indent=2).encode())
    return finished


def measure(model: MultiVectorEncoder, dataset: Dataset) -> dict[str, float]:
    """Rank a collection's documents for each of its queries by brute force, and judge that."""
    documents = list(dataset.documents())
    texts = [document_text(document)[0] for document in documents]
    places, scores = rank_all(
        encode_all(model, [query.text for query in dataset.queries], "query"),
        encode_all(model, texts, "document", "windows"),
        representation_of(model),
        MEASURED_DEPTH,
        model.device,
    )
    run = {
        query.id: [(documents[place].id, float(score)) for place, score in zip(*best, strict=True)]
        for query, *best in zip(dataset.queries, places, scores, strict=True)
    }
    return means(judge(run, dataset))


def _trainer_library() -> Any:
    """Import what only training needs; a missing extra is told with the way to install it."""
    try:
        import accelerate  # noqa: F401
        import datasets
    except ImportError as error:
        raise ModelError(
            "training needs more packages; run: pip install 'pseudoquery[train]'"
        ) from error
    return datasets


class Refresh(TrainerCallback):
    """Gives the course its negatives: the first ones, then newly mined ones every so many steps."""

    def __init__(
        self, course: Course, config: Config, folder: Path, model: MultiVectorEncoder
    ) -> None:
        self._course = course
        self._config = config
        self._folder = folder / "negatives"
        self._model = model

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Take up the negatives that were in force at the step from which training goes on."""
        every = self._config.refresh_steps
        self._take(state.global_step // every * every if every else 0)

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Mine anew when it is time."""
        every = self._config.refresh_steps
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._take(state.global_step)

    def _take(self, step: int) -> None:
        path = self._folder / f"{step:08d}.jsonl"
        if not path.exists():
            write_negatives(self._made(step), path)
        self._course.use(read_negatives(path), path.name)

    def _made(self, step: int) -> Negatives:
        source, depth = self._config.first_negatives, self._config.mine_depth
        if step == 0 and source == "random":
            return {}
        if step == 0 and source == "bm25":
            return mine_by_words(self._course.lessons, depth)
        if step == 0 and source != "model":
            return read_negatives(Path(source))
        return mine(self._model, self._course.lessons, depth)


class Statistics(TrainerCallback):
    """Logs what the paper's Figure 2 shows, and stops at once when the loss is not a number."""

    def __init__(self, loss: RankingLoss | CachedRankingLoss) -> None:
        self._loss = loss

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Add the newest statistics to what is logged."""
        if logs is None or "loss" not in logs:
            return
        if not math.isfinite(logs["loss"]):
            raise ModelError(
                f"the loss is {logs['loss']} at step {state.global_step}; lower the learning "
                "rate or use another precision; a new run goes on from the last checkpoint."
            )
        logs.update(self._loss.statistics)


def _arguments(config: Config, folder: Path) -> MultiVectorEncoderTrainingArguments:
    return MultiVectorEncoderTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_gradient_norm,
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        seed=config.seed,
        data_seed=config.seed,
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,  # a loss that is no number must be seen, to stop
        use_cpu=not torch.accelerator.is_available(),  # else mixed precision is refused there
        dataloader_drop_last=True,
        report_to=["tensorboard"],
    )


def _begin(folder: Path, config: Config, lessons: list[Lesson]) -> None:
    """Write down what this training is; a folder that holds another one is refused."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "negatives").mkdir(exist_ok=True)
    for name, content in (
        ("config.json", asdict(config)),
        ("data.json", {own.name: _checksum(own) for own in lessons}),
    ):
        text = json.dumps(content, indent=2)
        path = folder / name
        if path.exists() and path.read_text() != text:
            raise ModelError(
                f"{folder} holds a training with another {name}; choose another output folder, "
                "or remove it."
            )
        write_durably(path, text.encode())


def _checksum(own: Lesson) -> str:
    digest = hashlib.sha256()
    for part in (*own.texts.items(), *map(asdict, own.examples)):
        digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def _last_checkpoint(folder: Path) -> str | None:
    """Find the newest checkpoint that is whole; one that was cut short by a kill does not count."""
    found = sorted(
        filter(_is_whole, (folder / "checkpoints").glob("checkpoint-*")),
        key=lambda path: int(path.name.rpartition("-")[2]),
    )
    return str(found[-1]) if found else None


def _is_whole(checkpoint: Path) -> bool:
    """Say whether a checkpoint was finished: the trainer writes its state last of all."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
