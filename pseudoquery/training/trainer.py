"""sentence-transformers' trainer, made to fit: batches drawn when needed, whole checkpoints, quiet.

The data loader runs a batch ahead of the training. So it hands out row numbers only, and a batch is
drawn at its own step: a training that goes on from a checkpoint draws what it would have drawn.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from sentence_transformers import MultiVectorEncoderTrainer
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging

from pseudoquery.errors import ModelError
from pseudoquery.training.batches import BatchMaker
from pseudoquery.training.checkpoints import seal, unseal, write_error
from pseudoquery.training.distributed import is_first, wait_for_all

# What a checkpoint of another model makes the libraries raise.
UNREADABLE = (
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)


class RetrievalTrainer(MultiVectorEncoderTrainer):
    """Trains on the batches of a course."""

    def __init__(
        self, course: BatchMaker, callbacks: Sequence[TrainerCallback], **rest: Any
    ) -> None:
        super().__init__(
            data_collator=cast(Any, RowCollator()), callbacks=[*callbacks, EpochSetter()], **rest
        )
        self._course = course
        self.remove_callback(ProgressCallback)
        self.add_callback(TrainingBar())

    def collect_features(
        self, inputs: dict[str, Tensor | Any]
    ) -> tuple[list[dict[str, Tensor]], Any]:
        """Draw the batch of these rows."""
        batch = self._course.batch(inputs["rows"].tolist(), self.state.global_step)
        return super().collect_features(_on_device(batch, self.args.device))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what the paper's Figure 2 shows, too; stop when the loss is not a number."""
        if "loss" in logs:
            if not math.isfinite(logs["loss"]):
                raise _not_a_number(f"the loss is {logs['loss']}", self.state)
            statistics = cast(Any, self.loss).statistics
            logs = {**logs, **{name: float(value) for name, value in statistics.items()}}
        super().log(logs, start_time)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave out the generated model card: `card` writes a better one."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        with hide_progress_bars():
            self.model.save_pretrained(str(output_dir), create_model_card=False)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # A new run would go on from it, and never come to anything.
        if not all(bool(torch.isfinite(one).all()) for one in self.model.parameters()):
            raise _not_a_number("a weight is not a number", self.state)
        folder = Path(str(self.args.output_dir))
        checkpoint = folder / f"checkpoint-{self.state.global_step}"
        try:
            unseal(checkpoint)
            super()._save_checkpoint(model, trial)
            wait_for_all()  # each process writes the state of its own random numbers
            if is_first():
                seal(checkpoint)
        # torch and safetensors do not raise OSError when a disk is full.
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise write_error(folder, error) from error

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        try:
            with hide_progress_bars():
                super()._load_from_checkpoint(checkpoint_path)
        except UNREADABLE as error:
            raise ModelError(
                f"{checkpoint_path} does not fit the model that is trained here, which is another "
                "one than when this training began; put that model back, or choose another output."
            ) from error


class RowCollator:
    """The collator: hands on the numbers of the rows, block after block."""

    valid_label_columns = ()  # the trainer asks this of its collator

    def __call__(self, blocks: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Tensor]:
        """Collect the rows of a batch."""
        return {"rows": torch.tensor([row for block in blocks for row in block["rows"]])}


class EpochSetter(TrainerCallback):
    """Tells the innermost sampler the epoch, which wrappers around it may keep to themselves."""

    def on_epoch_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """Set the epoch, so that a training which goes on sees its rows in the right order."""
        sampler = train_dataloader.batch_sampler
        while hasattr(sampler, "batch_sampler"):
            sampler = sampler.batch_sampler
        sampler.set_epoch(int(state.epoch or 0))


class TrainingBar(ProgressCallback):
    """A progress bar with the loss in it; figures get a line of their own."""

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Show what is new; everything else that is logged is for TensorBoard."""
        bar: Any = self.training_bar
        if bar is None or logs is None:
            return
        if "loss" in logs:
            bar.set_postfix(loss=f"{logs['loss']:.4f}")
        figures = {
            name.removeprefix("eval_"): f"{100 * value:.2f}"
            for name, value in logs.items()
            if name.startswith("eval_") and "@" in name
        }
        if figures:
            shown = ", ".join(f"{name} {value}" for name, value in figures.items())
            bar.clear()
            bar.fp.write(f"step {state.global_step}: {shown}\n")
            bar.refresh()


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the progress bar over weights that are written in no time."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _not_a_number(what: str, state: TrainerState) -> ModelError:
    return ModelError(
        f"{what} at step {state.global_step}; lower the learning rate or use another precision; a "
        "new run goes on from the last checkpoint."
    )


def _on_device(values: Any, device: torch.device) -> Any:
    if isinstance(values, dict):
        return {name: _on_device(value, device) for name, value in values.items()}
    return values.to(device)
