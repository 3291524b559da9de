"""Checkpoints on disk: whole, or ignored.

A checkpoint is many files, written one after the other. When all are on disk it is sealed with a
list of them, and a training goes on from a sealed checkpoint only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from pseudoquery.errors import ModelError
from pseudoquery.files import files_below, sync_files, write_atomically

SEAL = "whole.json"
"""The file that lists the others, with their sizes."""


def seal(checkpoint: Path) -> None:
    """Mark a checkpoint as whole, once all its files are on disk."""
    unseal(checkpoint)
    sync_files(checkpoint)
    sizes = {
        str(path.relative_to(checkpoint)): path.stat().st_size for path in files_below(checkpoint)
    }
    write_atomically(checkpoint / SEAL, json.dumps(sizes, indent=2).encode())


def unseal(checkpoint: Path) -> None:
    """Remove the mark of a checkpoint, before it is written again."""
    (checkpoint / SEAL).unlink(missing_ok=True)


def is_whole(checkpoint: Path) -> bool:
    """Say whether a checkpoint was sealed, and all its files have the sizes they had then."""
    try:
        sizes = json.loads((checkpoint / SEAL).read_text(encoding="utf-8"))
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def find_last_checkpoint(folder: Path) -> Path | None:
    """Find the newest whole checkpoint; one that was cut short is passed over."""
    whole = filter(is_whole, folder.glob("checkpoint-*"))
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Turn a failure to write below a folder into one sentence that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise write_error(folder, error) from error


def write_error(folder: Path, error: Exception) -> ModelError:
    """Return an error that says why a training could not write, and how to go on."""
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    reason = (message.splitlines() or [type(error).__name__])[0].rstrip(".")
    return ModelError(
        f"{folder} can't be written ({reason}); make room or repair the disk, then run the "
        "same command again: it goes on from the last whole checkpoint."
    )
