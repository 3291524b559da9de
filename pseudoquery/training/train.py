"""Training on sentence-transformers' trainer, with hard negatives that are refreshed on the way.

One folder holds a whole training: config.json (the settings in force), data.json (checksums of what
was learnt from), negatives/STEP.jsonl, checkpoints, logs, and at the end figures.json, history.json
and the model. Run again after a kill, it goes on from the last checkpoint and ends where an
uninterrupted run would have. With torchrun, several processes share each batch, on one machine or
on several that share the folder; the first of them does all the writing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainingArguments

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.files import replace_folder, write_atomically
from pseudoquery.method.presets import preset
from pseudoquery.training.batches import BatchMaker, TokenisedSets, make_blocks, tokenise_sets
from pseudoquery.training.checkpoints import explain_disk_errors, find_last_checkpoint
from pseudoquery.training.config import Config, check_config, load_named_dataset, short_name
from pseudoquery.training.distributed import (
    broadcast_from_first,
    explain_lost_process,
    fail_together,
    is_first,
    process_count,
    wait_for_all,
)
from pseudoquery.training.examples import make_training_set, query_key
from pseudoquery.training.folder import begin_folder, compare_with_first
from pseudoquery.training.loss import CachedRankingLoss, Distillation, RankingLoss
from pseudoquery.training.model_card import collect_facts, make_card
from pseudoquery.training.refresh import NegativesRefresher, encoder_dtype
from pseudoquery.training.teacher import Scores, Teacher, read_scores
from pseudoquery.training.trainer import RetrievalTrainer, hide_progress_bars
from pseudoquery.training.validation import ValidationSet, Validator, make_validation_set, validate

LONGEST_WAIT = 7 * 24 * 3600
"""Seconds that processes wait for the one that mines or evaluates."""
logger = logging.getLogger(__name__)


@explain_lost_process()
def train(config: Config, material: TokenisedSets | None = None) -> Path:
    """Carry out a training, or the rest of one; returns the folder of the finished model.

    Several trainings with the same data can share its tokenised `material`.
    """
    check_config(config)
    datasets = _trainer_library()
    folder = Path(config.output)
    arguments = _arguments(config, folder)  # from here on, processes can wait for each other
    with fail_together():
        model = load_starting_model(config)
        material = material or load_training_sets(config, model)
        if is_first():
            with explain_disk_errors(folder):
                begin_folder(folder, config, material)
            _tell_left_out(material)
        exams = _validation_sets(config, model) if is_first() else []
    with fail_together():
        if not is_first():
            compare_with_first(folder, config, material)
    course = BatchMaker(
        material,
        negatives=config.negatives,
        queries_per_document=config.queries_per_document,
        seed=config.seed,
        scores=_scores(config, material),
    )
    refresh = NegativesRefresher(course, config, folder, model)
    trainer = RetrievalTrainer(
        course,
        [refresh],
        model=model,
        args=arguments,
        train_dataset=_blocks_by_set(course, config, refresh, datasets),
        loss=_loss(config, model),
        evaluator=Validator(exams) if config.evaluate_steps else None,
    )
    found = broadcast_from_first(find_last_checkpoint(folder / "checkpoints"))
    with explain_disk_errors(folder):
        trainer.train(resume_from_checkpoint=str(found) if found else None)
        if is_first():
            if config.start_weight:
                mix_weights(model, load_starting_model(config), config.start_weight)
            _finish(folder, config, material, model, exams)
            history = json.dumps(trainer.state.log_history).encode()
            write_atomically(folder / "history.json", history)
    wait_for_all()  # so that whoever returns finds the model
    return folder / "model"


def _validation_sets(config: Config, model: MultiVectorEncoder) -> list[ValidationSet]:
    return [
        make_validation_set(model, load_named_dataset(name), short_name(name))
        for name in config.evaluate
    ]


def _finish(
    folder: Path,
    config: Config,
    material: TokenisedSets,
    model: MultiVectorEncoder,
    exams: Sequence[ValidationSet],
) -> None:
    """Evaluate, and write the figures and the model with its card."""
    figures = {
        name: validate(model, exam) for name, exam in zip(config.evaluate, exams, strict=True)
    }
    write_atomically(folder / "figures.json", json.dumps(figures, indent=2).encode())
    card = make_card(collect_facts(config, material, model, figures))

    def write(place: Path) -> None:
        with hide_progress_bars():
            model.save_pretrained(str(place), create_model_card=False)
        write_atomically(place / "README.md", card.encode())

    replace_folder(folder / "model", write)


def mix_weights(model: MultiVectorEncoder, other: MultiVectorEncoder, share: float) -> None:
    """Mix the weights of another model into this one's."""
    others = dict(other.named_parameters())
    with torch.no_grad():
        for name, own in model.named_parameters():
            own.lerp_(others[name].to(own.device), share)


def load_starting_model(config: Config) -> MultiVectorEncoder:
    """Load the model that a training begins with."""
    model = load_model(config.model, preset(config.preset, **config.representation))
    model.max_seq_length = min(
        model.max_seq_length or config.document_tokens, config.document_tokens
    )
    return model


def load_training_sets(
    config: Config, model: MultiVectorEncoder, cache: Path | None = None
) -> TokenisedSets:
    """Load and tokenise what a training learns from; a folder as cache keeps the tokens."""
    names = [short_name(name) for name in config.train]
    for name in names:
        if names.count(name) > 1:
            raise CorpusError(
                f"two of the sets to train on are called {name!r}, so that their queries can't be "
                "told apart; rename a folder."
            )
    lessons = [make_training_set(load_named_dataset(name)) for name in config.train]
    return tokenise_sets(model, lessons, config.document_tokens, cache)


def _loss(config: Config, model: MultiVectorEncoder) -> RankingLoss | CachedRankingLoss:
    distillation = Distillation(
        config.distillation if config.teacher else 0.0, config.teacher_temperature
    )
    teacher = None
    if config.teacher and not config.teacher.endswith(".jsonl"):
        teacher = Teacher(load_model(config.teacher), encoder_dtype(config))
        if teacher.model.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise ModelError(
                f"the teacher {config.teacher!r} has another vocabulary than the model; "
                "write its scores to a .jsonl file and give that instead."
            )
    if config.mini_batch:
        return CachedRankingLoss(model, config.mini_batch, distillation, teacher)
    return RankingLoss(model, distillation, teacher)


def _scores(config: Config, material: TokenisedSets) -> Scores | None:
    """Read a teacher's scores, if they are in a file; queries that it leaves out are counted."""
    if not config.teacher.endswith(".jsonl"):
        return None
    scores = read_scores(Path(config.teacher))
    keys = [query_key(own, example) for own in material.lessons for example in own.examples]
    missing = sum(key not in scores for key in keys)
    if missing == len(keys):
        raise CorpusError(
            f"{config.teacher} scores none of the queries to learn from; they are named as "
            f"{keys[0]!r} there, by their dataset and their id."
        )
    if missing and is_first():
        logger.warning("%s: %d queries have no scores of the teacher.", config.teacher, missing)
    return scores


def _blocks_by_set(
    course: BatchMaker, config: Config, refresh: NegativesRefresher, datasets: Any
) -> Any:
    """Give the trainer the rows of each lesson, in blocks, as a dataset of its own.

    A batch comes from one of them: documents of another collection would be easy negatives, and
    may hold the same texts.
    """
    if config.batch_size % (config.neighbours * process_count()):
        raise ModelError(
            f"the {process_count()} processes can't share a batch of {config.batch_size} equally; "
            "make batch_size a multiple of their number"
            f"{' times neighbours' if config.neighbours > 1 else ''}."
        )
    negatives = refresh.negatives(0) if config.neighbours > 1 else {}
    made = {}
    for number, own in enumerate(course.material.lessons):
        places = [place for place, row in enumerate(course.rows) if row.lesson == number]
        if len(places) < config.batch_size:
            raise CorpusError(
                f"{own.name}: there are {len(places)} documents to learn from, fewer than one "
                f"batch of {config.batch_size}; lower batch_size."
            )
        rows = [course.rows[place] for place in places]
        blocks = make_blocks(rows, own, negatives, config.neighbours, config.seed)
        made[str(number)] = datasets.Dataset.from_dict(
            {"rows": [[places[row] for row in block] for block in blocks]}
        )
    return made["0"] if len(made) == 1 else datasets.DatasetDict(made)


def _trainer_library() -> Any:
    """Import what only training needs; a missing extra is told with the way to install it."""
    try:
        for name in ("accelerate", "tensorboard"):
            import_module(name)
        return import_module("datasets")
    except ImportError as error:
        raise ModelError(
            "training needs more packages; run: pip install 'pseudoquery[train]'"
        ) from error


def _arguments(config: Config, folder: Path) -> MultiVectorEncoderTrainingArguments:
    made = MultiVectorEncoderTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size // config.neighbours,  # in blocks
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_gradient_norm,
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        seed=config.seed,
        data_seed=config.seed,
        save_steps=config.save_steps,
        eval_strategy="steps" if config.evaluate_steps else "no",
        eval_steps=config.evaluate_steps or None,
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,  # a loss that is no number must be seen, to stop
        use_cpu=not torch.accelerator.is_available(),  # else mixed precision is refused there
        dataloader_drop_last=True,
        dataloader_pin_memory=False,  # the loader hands out row numbers only
        accelerator_config={"split_batches": True},  # a batch is of one lesson in all processes
        ddp_timeout=LONGEST_WAIT,
        report_to=["tensorboard"],
    )
    # Without torchrun, several GPUs would be given copies of the model, which can't pad alike.
    made._n_gpu = min(made.n_gpu, 1)
    return made


def _tell_left_out(material: TokenisedSets) -> None:
    for own in material.lessons:
        if own.without_positive:
            logger.warning(
                "%s: %d queries are left out, because no document answers them.",
                own.name,
                own.without_positive,
            )
