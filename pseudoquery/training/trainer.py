"""sentence-transformers' trainer, with batches drawn when needed and whole checkpoints.

The data loader runs a batch ahead of the training. So it hands out row positions only, and a batch
is drawn at its own step: a training that goes on from a checkpoint draws what it would have drawn.
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
    """Trains on the batches of a `BatchMaker`."""

    def __init__(
        self, batch_maker: BatchMaker, callbacks: Sequence[TrainerCallback], **rest: Any
    ) -> None:
        super().__init__(
            data_collator=cast(Any, RowCollator()), callbacks=[*callbacks, EpochSetter()], **rest
        )
        self._batch_maker = batch_maker
        self.remove_callback(ProgressCallback)
        self.add_callback(TrainingBar())

    def collect_features(
        self, inputs: dict[str, Tensor | Any]
    ) -> tuple[list[dict[str, Tensor]], Any]:
        """Draw the batch of these rows."""
        batch = self._batch_maker.make_batch(inputs["rows"].tolist(), self.state.global_step)
        return super().collect_features(_move_to(self.args.device, batch))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Also log what the paper's Figure 2 shows; stop when the loss is not a number."""
        if "loss" in logs:
            if not math.isfinite(logs["loss"]):
                raise _not_finite_error(f"the loss is {logs['loss']}", self.state)
            statistics = cast(Any, self.loss).statistics
            logs = {**logs, **{name: float(value) for name, value in statistics.items()}}
        super().log(logs, start_time)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave out the generated model card: `model_card` writes a better one."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        with hide_progress_bars():
            self.model.save_pretrained(str(output_dir), create_model_card=False)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # A new run would go on from such weights, and never recover.
        if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
            raise _not_finite_error("a weight is not a number", self.state)
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
                f"{checkpoint_path} does not fit the model that is trained here: this training "
                "began with another model; put that one back, or choose another output."
            ) from error


class RowCollator:
    """The collator of the data loader: puts the positions of the rows of all blocks together."""

    valid_label_columns = ()  # the trainer reads this attribute

    def __call__(self, blocks: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Tensor]:
        """Return the row positions of a batch."""
        return {"rows": torch.tensor([row for block in blocks for row in block["rows"]])}


class EpochSetter(TrainerCallback):
    """Sets the epoch of the innermost sampler, which the samplers around it may not pass on."""

    def on_epoch_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """Set the epoch, so that a resumed training sees its rows in the right order."""
        sampler = train_dataloader.batch_sampler
        while hasattr(sampler, "batch_sampler"):
            sampler = sampler.batch_sampler
        sampler.set_epoch(int(state.epoch or 0))


class TrainingBar(ProgressCallback):
    """A progress bar that shows the loss; evaluation figures are printed on lines of their own."""

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Show the loss and the figures; everything else that is logged is for TensorBoard."""
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
    """Hide the progress bars of transformers, which reads and writes weights in no time."""
    were_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if were_shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _not_finite_error(problem: str, state: TrainerState) -> ModelError:
    return ModelError(
        f"{problem} at step {state.global_step}; lower the learning rate or use another precision. "
        "A new run goes on from the last checkpoint."
    )


def _move_to(device: torch.device, values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _move_to(device, value) for name, value in values.items()}
    return values.to(device)
