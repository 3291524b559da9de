"""Training on sentence-transformers' trainer, with hard negatives that are refreshed on the way.

One folder holds a whole training: config.json (the settings), data.json (checksums of the training
data), negatives/STEP.jsonl, checkpoints, logs, and at the end figures.json, history.json and the
model. After a kill, the same training goes on from the last checkpoint and ends where an
uninterrupted one would have ended. With torchrun, several processes share each batch, on one
machine or on several that share the folder; the first process does all the writing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainingArguments

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import CorpusError, ModelError
from pseudoquery.files import replace_folder, write_atomically
from pseudoquery.training.average import mix_weights
from pseudoquery.training.batches import BatchMaker, TokenisedSets, make_blocks, tokenise_sets
from pseudoquery.training.checkpoints import explain_disk_errors, find_last_checkpoint
from pseudoquery.training.config import (
    Config,
    check_config,
    load_named_dataset,
    loss_settings,
    short_name,
    trained_representation,
)
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
from pseudoquery.training.loss import CachedRankingLoss, Guides, RankingLoss
from pseudoquery.training.loss_settings import LossSettings
from pseudoquery.training.model_card import collect_facts, make_card
from pseudoquery.training.objective import ANCHORED, make_objective
from pseudoquery.training.ranking_losses import Distillation
from pseudoquery.training.refresh import NegativesRefresher, encoder_dtype
from pseudoquery.training.teacher import Scores, Teacher, read_scores
from pseudoquery.training.trainer import RetrievalTrainer, hide_progress_bars
from pseudoquery.training.validation import (
    ValidationSet,
    Validator,
    make_validation_set,
    validate,
)
from pseudoquery.training.weighted_batches import WeightedBatchSampler

LONGEST_WAIT = 7 * 24 * 3600
"""Seconds that processes wait for the one that mines or evaluates."""
logger = logging.getLogger(__name__)


@explain_lost_process()
def train(config: Config, tokenised: TokenisedSets | None = None) -> Path:
    """Train a model, or finish a training that was interrupted; return the model's folder.

    Several trainings on the same data can share its `tokenised` texts.
    """
    check_config(config)
    datasets = _import_trainer_library()
    folder = Path(config.output)
    arguments = _make_arguments(config, folder)  # connects the processes
    with fail_together():
        model = load_starting_model(config)
        tokenised = tokenised or load_training_sets(config, model)
        if is_first():
            with explain_disk_errors(folder):
                begin_folder(folder, config, tokenised)
            _warn_of_unanswered(tokenised)
        validation_sets = _make_validation_sets(config, model) if is_first() else []
    with fail_together():
        if not is_first():
            compare_with_first(folder, config, tokenised)
    batch_maker = BatchMaker(
        tokenised,
        negatives=config.negatives,
        queries_per_document=config.queries_per_document,
        seed=config.seed,
        scores=_read_teacher_scores(config, tokenised),
    )
    refresher = NegativesRefresher(batch_maker, config, folder, model)
    trainer = RetrievalTrainer(
        batch_maker,
        [refresher],
        model=model,
        args=arguments,
        train_dataset=_make_datasets(batch_maker, config, refresher, datasets),
        loss=_make_loss(config, model),
        evaluator=Validator(validation_sets) if config.evaluate_steps else None,
    )
    checkpoint = broadcast_from_first(find_last_checkpoint(folder / "checkpoints"))
    with explain_disk_errors(folder):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if is_first():
            if config.start_weight:
                mix_weights(model, load_starting_model(config), config.start_weight)
            _write_results(folder, config, tokenised, model, validation_sets)
            history = json.dumps(trainer.state.log_history).encode()
            write_atomically(folder / "history.json", history)
    wait_for_all()  # so that every process that returns finds the model
    return folder / "model"


def _make_validation_sets(config: Config, model: MultiVectorEncoder) -> list[ValidationSet]:
    return [
        make_validation_set(model, load_named_dataset(name), short_name(name))
        for name in config.evaluate
    ]


def _write_results(
    folder: Path,
    config: Config,
    tokenised: TokenisedSets,
    model: MultiVectorEncoder,
    validation_sets: Sequence[ValidationSet],
) -> None:
    """Evaluate, and write the figures and the model with its card."""
    figures = {
        name: validate(model, validation_set)
        for name, validation_set in zip(config.evaluate, validation_sets, strict=True)
    }
    write_atomically(folder / "figures.json", json.dumps(figures, indent=2).encode())
    card = make_card(collect_facts(config, tokenised, model, figures))

    def write(model_folder: Path) -> None:
        with hide_progress_bars():
            model.save_pretrained(str(model_folder), create_model_card=False)
        write_atomically(model_folder / "README.md", card.encode())

    replace_folder(folder / "model", write)


def load_starting_model(config: Config) -> MultiVectorEncoder:
    """Load the model that a training begins with."""
    model = load_model(config.model, trained_representation(config))
    model.max_seq_length = min(
        model.max_seq_length or config.document_tokens, config.document_tokens
    )
    return model


def load_training_sets(
    config: Config, model: MultiVectorEncoder, cache: Path | None = None
) -> TokenisedSets:
    """Load and tokenise the datasets of a training; a folder as `cache` stores the tokens."""
    names = [short_name(name) for name in config.train]
    for name in names:
        if names.count(name) > 1:
            raise CorpusError(
                f"two of the datasets to train on are called {name!r}, so that their queries "
                "can't be told apart; rename a folder."
            )
    training_sets = [make_training_set(load_named_dataset(name)) for name in config.train]
    return tokenise_sets(model, training_sets, config.document_tokens, cache)


def _make_loss(config: Config, model: MultiVectorEncoder) -> RankingLoss | CachedRankingLoss:
    settings = loss_settings(config)
    distillation = Distillation(
        config.distillation if config.teacher else 0.0, config.teacher_temperature
    )
    objective = make_objective(model, settings, distillation, config.seed)
    guides = Guides(_load_teacher(config, model), _load_anchor(config, model, settings))
    if config.mini_batch:
        return CachedRankingLoss(model, config.mini_batch, objective, guides)
    return RankingLoss(model, objective, guides)


def _load_teacher(config: Config, model: MultiVectorEncoder) -> Teacher | None:
    if not config.teacher or config.teacher.endswith(".jsonl"):
        return None
    teacher = Teacher(load_model(config.teacher), encoder_dtype(config))
    if not _read_alike(teacher.model, model):
        raise ModelError(
            f"the teacher {config.teacher!r} has another vocabulary than the model; "
            "write its scores to a .jsonl file and give that instead."
        )
    return teacher


def _load_anchor(
    config: Config, model: MultiVectorEncoder, settings: LossSettings
) -> Teacher | None:
    """Load the model whose similarities are to be kept, as one that makes mean vectors."""
    if not settings.anchor:
        return None
    name = settings.anchor_model or config.model
    anchor = Teacher(load_model(name, ANCHORED), encoder_dtype(config))
    if not _read_alike(anchor.model, model):
        raise ModelError(
            f"the anchor {name!r} has another vocabulary than the model; choose the model that "
            "the training starts from, or one that was trained from it."
        )
    return anchor


def _read_alike(first: MultiVectorEncoder, second: MultiVectorEncoder) -> bool:
    """Say whether two models take the same token ids."""
    return bool(first.tokenizer.get_vocab() == second.tokenizer.get_vocab())


def _read_teacher_scores(config: Config, tokenised: TokenisedSets) -> Scores | None:
    """Read a teacher's scores if they are in a file; warn of queries that it leaves out."""
    if not config.teacher.endswith(".jsonl"):
        return None
    scores = read_scores(Path(config.teacher))
    keys = [
        query_key(training_set, example)
        for training_set in tokenised.training_sets
        for example in training_set.examples
    ]
    missing = sum(key not in scores for key in keys)
    if missing == len(keys):
        raise CorpusError(
            f"{config.teacher} scores none of the queries to learn from; a query has to be named "
            f"by its dataset and its id, as {keys[0]!r}."
        )
    if missing and is_first():
        logger.warning(
            "%s has no scores for %d of the %d queries.", config.teacher, missing, len(keys)
        )
    return scores


def _make_datasets(
    batch_maker: BatchMaker, config: Config, refresher: NegativesRefresher, datasets: Any
) -> Any:
    """Give the trainer the rows of each training set, in blocks, as a dataset of its own.

    A batch comes from one of them: documents of another collection would be easy negatives, and
    may hold the same texts.
    """
    if config.batch_size % (config.neighbours * process_count()):
        raise ModelError(
            f"the {process_count()} processes can't share a batch of {config.batch_size} equally; "
            "make batch_size a multiple of their number"
            f"{' times neighbours' if config.neighbours > 1 else ''}."
        )
    negatives = refresher.load_negatives(0) if config.neighbours > 1 else {}
    blocks_by_set = {}
    for set_position, training_set in enumerate(batch_maker.tokenised.training_sets):
        positions = [
            position
            for position, row in enumerate(batch_maker.rows)
            if row.set_position == set_position
        ]
        if len(positions) < config.batch_size:
            raise CorpusError(
                f"{training_set.name}: there are {len(positions)} documents to learn from, fewer "
                f"than one batch of {config.batch_size}; lower batch_size."
            )
        rows = [batch_maker.rows[position] for position in positions]
        blocks = make_blocks(rows, training_set, negatives, config.neighbours, config.seed)
        blocks_by_set[str(set_position)] = datasets.Dataset.from_dict(
            {"rows": [[positions[row] for row in block] for block in blocks]}
        )
    if len(blocks_by_set) == 1 and not config.weights:
        return blocks_by_set["0"]
    return datasets.DatasetDict(blocks_by_set)


def _import_trainer_library() -> Any:
    """Import what only training needs, or say how to install it."""
    try:
        for name in ("accelerate", "tensorboard"):
            import_module(name)
        return import_module("datasets")
    except ImportError as error:
        raise ModelError(
            "training needs more packages; run: pip install 'pseudoquery[train]'"
        ) from error


def _make_arguments(config: Config, folder: Path) -> MultiVectorEncoderTrainingArguments:
    arguments = MultiVectorEncoderTrainingArguments(
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
        logging_nan_inf_filter=False,  # a loss that is not a number has to stop the training
        use_cpu=not torch.accelerator.is_available(),  # else mixed precision is refused there
        dataloader_drop_last=True,
        dataloader_pin_memory=False,  # the loader hands out row positions only
        accelerator_config={"split_batches": True},  # all processes share a batch of one dataset
        ddp_timeout=LONGEST_WAIT,
        report_to=["tensorboard"],
    )
    if config.weights:
        weights = [config.weights.get(short_name(name), 1.0) for name in config.train]
        arguments.multi_dataset_batch_sampler = partial(WeightedBatchSampler, weights=weights)
    # Without torchrun, several GPUs would be given copies of the model, which can't pad alike.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _warn_of_unanswered(tokenised: TokenisedSets) -> None:
    for training_set in tokenised.training_sets:
        if training_set.without_positive:
            logger.warning(
                "%s: no document answers %d of its %d queries, so training leaves those out.",
                training_set.name,
                training_set.without_positive,
                training_set.without_positive + len(training_set.examples),
            )
