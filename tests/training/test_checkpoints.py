from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from pseudoquery.errors import ModelError
from pseudoquery.files import replace_folder
from pseudoquery.training.checkpoints import (
    SEAL,
    explain_disk_errors,
    find_last_checkpoint,
    is_whole,
    seal,
    unseal,
)


def checkpoint(folder: Path, step: int, sealed: bool = True) -> Path:
    made = folder / f"checkpoint-{step}"
    (made / "module").mkdir(parents=True)
    (made / "weights").write_bytes(b"weights")
    (made / "module" / "config").write_bytes(b"config")
    if sealed:
        seal(made)
    return made


def test_only_a_sealed_checkpoint_is_taken_up(tmp_path: Path) -> None:
    assert find_last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 20, sealed=False)
    assert find_last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 3)
    newest = checkpoint(tmp_path, 12)
    assert find_last_checkpoint(tmp_path) == newest, "by number, not by name"
    unseal(newest)
    unseal(newest)
    assert find_last_checkpoint(tmp_path) == tmp_path / "checkpoint-3"


@pytest.mark.parametrize("name", ["weights", "module/config", SEAL])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_checkpoint_is_not_whole(tmp_path: Path, name: str, damage: str) -> None:
    made = checkpoint(tmp_path, 1)
    assert is_whole(made)
    if damage == "cut":
        (made / name).write_bytes((made / name).read_bytes()[:-1])
    else:
        (made / name).unlink()
    assert not is_whole(made)
    if name != SEAL:
        seal(made)
        assert is_whole(made), "whoever seals it has looked"


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for content in ("first", "second"):
        replace_folder(target, lambda place, said=content: _write(place, said))  # type: ignore[misc]
        assert (target / "sub" / "file").read_text() == content
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


def _write(place: Path, content: str) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "file").write_text(content)


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def fail(place: Path) -> None:
        _write(place, "half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        replace_folder(target, fail)
    assert list(tmp_path.iterdir()) == []
    replace_folder(target, lambda place: _write(place, "old"))
    with pytest.raises(OSError, match="No space"):
        replace_folder(target, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (target / "sub" / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (OSError("short"), "short"),
        (SafetensorError("I/O error: full.\nmore"), "I/O error: full"),
        (SafetensorError(""), "SafetensorError"),
    ],
)
def test_an_error_of_the_disk_says_what_to_do(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    with pytest.raises(ModelError) as raised, explain_disk_errors(tmp_path):
        raise error
    said = str(raised.value)
    assert said.startswith(f"{tmp_path} can't be written ({reason}); make room or repair the disk")
    assert said.endswith("it goes on from the last whole checkpoint.")
    assert "\n" not in said
