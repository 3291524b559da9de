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
from pseudoquery.training.distributed import (
    is_first,
    wait_for_all,
)
from pseudoquery.training.mine import mine, mine_by_words
from pseudoquery.training.negatives import Negatives, read_negatives, write_negatives

logger = logging.getLogger(__name__)


def negatives_path(folder: Path, step: int) -> Path:
    """Say where a training looks for the negatives of a step before it makes them itself."""
    return folder / "negatives" / f"{step:08d}.jsonl"


class NegativesRefresher(TrainerCallback):
    """Gives the course its negatives: the first ones, then newly mined ones every so many steps."""

    def __init__(
        self, course: BatchMaker, config: Config, folder: Path, model: MultiVectorEncoder
    ) -> None:
        self._course = course
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

    def negatives(self, step: int) -> Negatives:
        """Read the negatives that come into force at a step; the first to ask makes them."""
        path = negatives_path(self._folder, step)
        if is_first() and not path.exists():
            write_negatives(self._made(step), path)
        wait_for_all()  # the others need the file
        return read_negatives(path)

    def _take(self, step: int) -> None:
        missing = self._course.use(self.negatives(step))
        if (missing.queries or missing.unknown) and is_first() and not self._is_random(step):
            logger.warning(
                "%s: %d queries have no negatives and %d negatives are not in the corpus; random "
                "documents take their place.",
                negatives_path(self._folder, step),
                missing.queries,
                missing.unknown,
            )

    def _made(self, step: int) -> Negatives:
        source, depth = self._config.first_negatives, self._config.mine_depth
        if self._is_random(step):
            return {}
        if step == 0 and source == "bm25":
            return mine_by_words(self._course.material.lessons, depth)
        if step == 0 and source != "model":
            return read_negatives(Path(source))
        precision = encoder_dtype(self._config)
        mixed = precision != torch.float32
        with torch.autocast(self._model.device.type, precision if mixed else None, enabled=mixed):
            return mine(self._model, self._course.material, depth)

    def _is_random(self, step: int) -> bool:
        return step == 0 and self._config.first_negatives == "random"


def encoder_dtype(config: Config) -> torch.dtype:
    """Say in which precision the encoder computes."""
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    return types.get(config.precision, torch.float32)
