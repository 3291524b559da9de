"""Acknowledged changes that SQLite has dropped are missed, and what is left of them stays."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.acknowledged import FILE, SLOT, acknowledged_generation
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems, repair
from tests.support.crash_writer import SETTINGS, encode, expected, put
from tests.support.stores import SUPPORT, A, B, everything

DOCUMENTS = 6
FLIPS = 120
KILLED = f"""
import os, signal, sys, crash_writer
from pathlib import Path
with crash_writer.FolderStore.open(Path(sys.argv[1])).writer() as writer:
    for number in range({DOCUMENTS}):
        crash_writer.put(writer, crash_writer.Document(str(number), f"the text of {{number}}"))
    os.kill(os.getpid(), signal.SIGKILL)
"""
WHOLE = {str(n): expected(Document(str(n), f"the text of {n}")) for n in range(DOCUMENTS)}


@pytest.fixture
def killed(tmp_path: Path) -> FolderStore:
    """An index whose writer was killed: all it has committed is in the log."""
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, "-c", KILLED, str(made.folder)]
    assert subprocess.run(command, env=environment).returncode == -9
    assert (made.folder / "index.sqlite-wal").stat().st_size > 0
    return made


def damage_log(folder: Path, bit: int | None = None) -> None:
    """Flip a bit of the log, by default one in the middle."""
    log = folder / "index.sqlite-wal"
    data = bytearray(log.read_bytes())
    bit = 4 * len(data) if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    log.write_bytes(data)


def remove_log(folder: Path) -> None:
    (folder / "index.sqlite-wal").unlink()


def files(folder: Path) -> dict[str, bytes]:
    """Read all files that could tell what was lost."""
    paths = [folder / "index.sqlite-wal", *(folder / "segments").iterdir()]
    contents = {path.name: path.read_bytes() for path in paths if path.exists()}
    return {name: content for name, content in contents.items() if content}


def test_what_a_killed_writer_has_committed_is_there(killed: FolderStore) -> None:
    assert everything(killed) == WHOLE
    assert problems(killed) == []
    assert everything(killed) == WHOLE


def test_every_flipped_bit_of_the_log_is_harmless_or_reported(
    killed: FolderStore, tmp_path: Path
) -> None:
    size = 8 * (killed.folder / "index.sqlite-wal").stat().st_size
    reported = 0
    for bit in random.Random(0).sample(range(size), FLIPS):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(killed.folder, copy)
        damage_log(copy, bit)
        before = files(copy)
        store = FolderStore.open(copy)
        try:
            whole = everything(store) == WHOLE
        except IndexFolderError as error:
            assert "though acknowledged" in str(error)  # noqa: PT017
            whole = False
        found = problems(FolderStore.open(copy))
        assert whole == (not found), f"bit {bit}"
        if found:
            assert "though acknowledged" in found[0]
            assert files(copy) == before, "to report changes nothing"
            reported += 1
    assert reported > FLIPS // 2


@pytest.mark.parametrize("lose", [damage_log, remove_log])
def test_nobody_goes_on_as_if_nothing_was_lost(
    killed: FolderStore, lose: Callable[[Path], None]
) -> None:
    lose(killed.folder)
    before = files(killed.folder)
    store = FolderStore.open(killed.folder)
    for use in (lambda: everything(store), lambda: store.writer().__enter__()):
        with pytest.raises(IndexFolderError, match=r"missing from .*though acknowledged") as caught:
            use()
        assert f"`pseudoquery verify {store.folder} --repair`" in str(caught.value)
    assert files(killed.folder) == before


@pytest.mark.parametrize("lose", [damage_log, remove_log])
def test_repair_goes_on_and_sets_aside_what_is_left(
    killed: FolderStore, lose: Callable[[Path], None]
) -> None:
    lose(killed.folder)
    before = files(killed.folder)
    store = FolderStore.open(killed.folder)
    assert len(problems(store)) == 1
    repair(store, encode)
    assert problems(store) == []
    rest = everything(store)
    assert rest.items() < WHOLE.items()
    (aside,) = (store.folder / "lost").iterdir()
    kept = {path.name: path.read_bytes() for path in aside.iterdir() if path.stat().st_size}
    with store.snapshot() as snapshot:
        named = {
            segment_path(store.folder, facts.number).name for facts in snapshot.segment_facts()
        }
    assert kept == {name: data for name, data in before.items() if name not in named}
    with store.writer() as writer:
        put(writer, A)
    assert everything(store) == rest | {"a": expected(A)}
    assert problems(store) == []


def test_what_comes_after_a_loss_is_not_taken_for_what_was_lost(killed: FolderStore) -> None:
    """A reader that has seen the lost changes sees the new ones, though there are as many."""
    reader = FolderStore.open(killed.folder)
    assert everything(reader) == WHOLE
    with reader.snapshot() as snapshot:
        epoch = snapshot.view.epoch
    reader._readers._take(None)  # closes what it has open
    remove_log(killed.folder)
    store = FolderStore.open(killed.folder)
    repair(store, encode)
    for number in range(DOCUMENTS):
        with store.writer() as writer:
            put(writer, Document(f"new {number}", f"other text of {number}"))
    assert set(everything(reader)) == {f"new {number}" for number in range(DOCUMENTS)}
    with reader.snapshot() as snapshot:
        assert snapshot.view.epoch > epoch


# --- the file


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A)
        put(writer, B)
    return made


def acknowledged(store: FolderStore) -> int | None:
    return acknowledged_generation(store.folder, store._identity or "")


def test_each_commit_is_written_down(store: FolderStore) -> None:
    assert acknowledged(store) == 2
    with store.writer() as writer:
        for number in range(3, 8):
            put(writer, A)
            assert acknowledged(store) == number
    assert (store.folder / FILE).stat().st_size == 2 * SLOT


@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_leaves_the_other(store: FolderStore, slot: int) -> None:
    path = store.folder / FILE
    data = path.read_bytes()
    for place in random.Random(slot).sample(range(SLOT), 40):
        at = slot * SLOT + place
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert acknowledged(store) == (1 if slot == 0 else 2)
        assert everything(FolderStore.open(store.folder)).keys() == {"a", "b"}
    with store.writer() as writer:
        assert acknowledged(store) == 2, "it is written anew"
        writer.delete(["a"])
    assert acknowledged(store) == 3


@pytest.mark.parametrize("content", [None, b"", b"garbage " * 2000])
def test_without_the_file_an_index_is_used_as_ever(
    store: FolderStore, content: bytes | None
) -> None:
    path = store.folder / FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert acknowledged(store) is None
    assert everything(FolderStore.open(store.folder)).keys() == {"a", "b"}
    assert problems(store) == []
    assert acknowledged(store) == 2


def test_the_file_of_another_index_says_nothing(store: FolderStore, tmp_path: Path) -> None:
    other = FolderStore.create(tmp_path / "other", SETTINGS)
    shutil.copy(store.folder / FILE, other.folder / FILE)
    assert everything(other) == {}
    assert problems(other) == []


def test_a_commit_that_could_not_be_written_down_is_not_acknowledged(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with store.writer() as writer:
        monkeypatch.setattr("pseudoquery.storage.acknowledged.os.fdatasync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            writer.delete(["a"])
        monkeypatch.undo()
    assert everything(store).keys() == {"b"}
    assert problems(store) == []
