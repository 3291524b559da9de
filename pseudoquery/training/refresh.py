"""Hard negatives mined anew by the model in training (ANCE)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pseudoquery.training.batches import BatchMaker
from pseudoquery.training.config import Config
from pseudoquery.training.distributed import is_first, wait_for_all
from pseudoquery.training.mine import mine, mine_by_words
from pseudoquery.training.negatives import Negatives, read_negatives, write_negatives

logger = logging.getLogger(__name__)


def negatives_path(folder: Path, step: int) -> Path:
    """Return the file of the negatives of a step; a training mines them only if it is missing."""
    return folder / "negatives" / f"{step:08d}.jsonl"


class NegativesRefresher(TrainerCallback):
    """Gives a `BatchMaker` its negatives: first ones, then newly mined ones every so many steps."""

    def __init__(
        self, batch_maker: BatchMaker, config: Config, folder: Path, model: MultiVectorEncoder
    ) -> None:
        self._batch_maker = batch_maker
        self._config = config
        self._folder = folder
        self._model = model

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Use the negatives that were in use at the step from which training goes on."""
        every = self._config.refresh_steps
        self._use_negatives(state.global_step // every * every if every else 0)

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Mine new negatives every `refresh_steps`."""
        every = self._config.refresh_steps
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._use_negatives(state.global_step)

    def load_negatives(self, step: int) -> Negatives:
        """Read the negatives of a step; the first process mines them if no file has them."""
        path = negatives_path(self._folder, step)
        if is_first() and not path.exists():
            write_negatives(self._mine(step), path)
        wait_for_all()  # the others need the file
        return read_negatives(path)

    def _use_negatives(self, step: int) -> None:
        missing = self._batch_maker.use_negatives(self.load_negatives(step))
        if (missing.queries or missing.unknown) and is_first() and not self._is_random(step):
            logger.warning(
                "%s: queries without negatives: %d; negatives that are not in the corpus: %d. "
                "Random documents are used instead.",
                negatives_path(self._folder, step),
                missing.queries,
                missing.unknown,
            )

    def _mine(self, step: int) -> Negatives:
        source, depth = self._config.first_negatives, self._config.mine_depth
        if self._is_random(step):
            return {}
        if step == 0 and source == "bm25":
            return mine_by_words(self._batch_maker.tokenised.training_sets, depth)
        if step == 0 and source != "model":
            return read_negatives(Path(source))
        precision = encoder_dtype(self._config)
        mixed = precision != torch.float32
        with torch.autocast(self._model.device.type, precision if mixed else None, enabled=mixed):
            return mine(self._model, self._batch_maker.tokenised, depth)

    def _is_random(self, step: int) -> bool:
        return step == 0 and self._config.first_negatives == "random"


def encoder_dtype(config: Config) -> torch.dtype:
    """Return the type of numbers that the encoder computes with."""
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    return types.get(config.precision, torch.float32)
