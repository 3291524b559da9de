"""Segments are compared with what was written before they are used, once per opening."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage import segment_blocks, segment_checks
from pseudoquery.storage.mapped_file import read_ahead
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.segment_blocks import BLOCK, SUMS
from pseudoquery.storage.segments import Segment, check_content, segment_path
from pseudoquery.storage.store import FolderStore
from tests.support.crash_writer import SETTINGS, content, expected, put
from tests.support.stores import A, B, C, everything


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """An index with the documents A and B, each in a segment of its own."""
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A)
        put(writer, B)
    return made


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of the blocks that are compared."""
    sizes: list[int] = []

    def collect(part: np.ndarray) -> None:
        sizes.append(len(part))
        read_ahead(part)

    monkeypatch.setattr(segment_blocks, "read_ahead", collect)
    return sizes


def test_each_segment_is_compared_once(store: FolderStore, compared: list[int]) -> None:
    everything(store)
    both = len(compared)
    assert both > 0
    for _ in range(3):
        everything(store)
    assert len(compared) == both
    with store.writer() as writer:
        put(writer, C)
    everything(store)
    assert both < len(compared) < 2 * both
    before = len(compared)
    everything(FolderStore.open(store.folder))
    assert len(compared) == 2 * before


def test_who_reads_no_vectors_waits_for_no_comparison(
    store: FolderStore, compared: list[int]
) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.count() == 2
        assert snapshot.get("a") is not None
        assert len(snapshot.ids()) == 2
    assert store.facts()["documents"] == 2
    assert compared == []


def test_a_document_is_compared_without_its_neighbours(tmp_path: Path, compared: list[int]) -> None:
    dimension = 256
    settings = Settings("stub", "stub", dimension, {}, vector_type="float32")
    store = FolderStore.create(tmp_path / "index", settings)
    vectors = np.random.default_rng(0).standard_normal((16, 64, dimension), dtype=np.float32)
    documents = [Document(f"{number}", "text") for number in range(len(vectors))]
    with store.writer() as writer:
        writer.add(documents, [DocumentVectors(array) for array in vectors])
    with FolderStore.open(store.folder).snapshot() as snapshot:
        view = snapshot.view
        compared.clear()
        read = view.vectors_of(np.array([5]))
        assert read.tobytes() == vectors[5].tobytes()
        assert vectors[5].nbytes <= sum(compared) <= vectors[5].nbytes + 2 * BLOCK
        compared.clear()
        view.vectors_of(np.array([5]))
        assert compared == []
        view.rows(np.array([7 * 64]))
        assert vectors[7].nbytes <= sum(compared) <= vectors[7].nbytes + 2 * BLOCK


def test_a_damaged_segment_is_refused_until_it_is_restored(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(IndexFolderError, match="its content is not what was written"):
            everything(store)
    path.write_bytes(data)
    assert set(everything(store)) == {"a", "b"}


def test_no_flipped_bit_changes_what_is_read(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    sound = everything(store)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(IndexFolderError, match=f"{path}.*--repair"):
            everything(FolderStore.open(store.folder))
    path.write_bytes(data)
    assert everything(store) == sound


def write_without_sums(folder: Path, number: int) -> Path:
    """Write a segment again as older versions did."""
    path = segment_path(folder, number)
    arrays = load(path.read_bytes())
    del arrays[SUMS]
    data = save(arrays)
    path.write_bytes(data)
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE segments SET bytes = ?, sha256 = ? WHERE number = ?",
            [len(data), hashlib.sha256(data).hexdigest(), number],
        )
    return path


def test_an_older_segment_is_compared_as_a_whole(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(store)
    path = write_without_sums(store.folder, 2)
    names: list[str] = []

    def collect(segment: Segment) -> None:
        names.append(segment.path.stem)
        check_content(segment)

    monkeypatch.setattr(segment_checks, "check_content", collect)
    opened = FolderStore.open(store.folder)
    assert everything(opened) == everything(opened) == before
    assert names == [path.stem]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(IndexFolderError, match="its content is not what was written"):
        everything(FolderStore.open(store.folder))


def test_a_segment_that_a_merge_has_removed_is_compared_by_what_is_mapped(
    store: FolderStore,
) -> None:
    with FolderStore.open(store.folder).snapshot() as snapshot:
        with store.writer() as writer:
            writer.compact()
        assert not segment_path(store.folder, 1).exists()
        assert content(snapshot) == {"a": expected(A), "b": expected(B)}


def test_damage_is_found_in_what_is_mapped_of_a_removed_segment(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with FolderStore.open(store.folder).snapshot() as snapshot:
        path.unlink()
        with pytest.raises(IndexFolderError, match="its content is not what was written"):
            content(snapshot)


def test_a_segment_of_the_same_number_from_a_backup_is_mapped_anew(store: FolderStore) -> None:
    """After a restore, numbers begin again where the backup ends."""
    assert set(everything(store)) == {"a", "b"}
    path = segment_path(store.folder, 2)
    other = FolderStore.create(store.folder.parent / "other", SETTINGS)
    with other.writer() as writer:
        put(writer, A)
        put(writer, C)
        writer.delete(["a"])
    data = segment_path(other.folder, 2).read_bytes()
    assert path.read_bytes() != data
    (other.folder / "index.sqlite").replace(store.folder / "index.sqlite")
    path.write_bytes(data)
    moved = FolderStore.open(store.folder)
    moved._segments = dict(store._segments)  # as if it had been open all the time
    assert everything(moved) == {"c": expected(C)}
