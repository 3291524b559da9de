"""Files and folders survive a power cut, on any file system that keeps what POSIX promises."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pseudoquery.files import make_folder, new_folder, replace_folder, write_atomically
from pseudoquery.storage.store import FolderStore
from tests.support.crash_writer import SETTINGS, put
from tests.support.stores import A


class Disk:
    """What a power cut leaves: a name is there only if its folder was synced since it came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names: dict[int, set[str]] = {}
        self._sync = os.fsync
        monkeypatch.setattr("pseudoquery.files.os.fsync", self._watch)

    def _watch(self, descriptor: int) -> None:
        self._sync(descriptor)
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            self._names[facts.st_ino] = set(os.listdir(descriptor))

    def keeps(self, path: Path, root: Path) -> bool:
        """Say whether one still reaches a file from a folder that was there before."""
        return path == root or (
            path.name in self._names.get(path.parent.stat().st_ino, ())
            and self.keeps(path.parent, root)
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("name", ["index", "a/b/index"])
def test_a_new_index_survives_a_power_cut(disk: Disk, tmp_path: Path, name: str) -> None:
    store = FolderStore.create(tmp_path / name, SETTINGS)
    with store.writer() as writer:
        put(writer, A)
    for file in ("index.sqlite", "segments/00000001.safetensors"):
        assert disk.keeps(store.folder / file, tmp_path)


def test_a_folder_that_an_interrupted_run_has_made_is_synced_too(
    disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "index" / "segments").mkdir(parents=True)
    FolderStore.create(tmp_path / "index", SETTINGS)
    assert disk.keeps(tmp_path / "index" / "index.sqlite", tmp_path)


def test_an_export_and_what_is_replaced_survive_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    with new_folder(tmp_path / "a" / "export") as unfinished:
        (unfinished / "file").write_text("content")
    assert disk.keeps(tmp_path / "a" / "export" / "file", tmp_path)

    def write(folder: Path) -> None:
        (folder / "file").write_text("content")

    replace_folder(tmp_path / "b" / "model", write)
    assert disk.keeps(tmp_path / "b" / "model" / "file", tmp_path)


def test_the_folder_of_a_new_file_is_made_and_survives(disk: Disk, tmp_path: Path) -> None:
    write_atomically(tmp_path / "derived" / "file", b"content")
    assert disk.keeps(tmp_path / "derived" / "file", tmp_path)


def test_a_file_makes_no_more_than_its_folder(tmp_path: Path) -> None:
    """A writer whose index was moved away must not make another where it was."""
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "index" / "segments" / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_one_that_can_t_be_read_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    (tmp_path / "index").mkdir()
    monkeypatch.setattr("pseudoquery.files.os.open", refuse)
    make_folder(tmp_path / "index")
