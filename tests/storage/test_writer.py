"""Changes to an index: what is committed, how segments are merged, and what compaction frees."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.token_codes import bytes_per_token
from pseudoquery.records import Document
from pseudoquery.storage import writer as writer_module
from pseudoquery.storage.schema import document_checksum
from pseudoquery.storage.segments import SegmentFacts, segment_path
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from pseudoquery.storage.writer import FolderWriter
from tests.support.crash_writer import (
    DIMENSION,
    SETTINGS,
    content,
    encode,
    expected,
    put,
    vectors_of,
)

DOCUMENTS = [Document(f"id {number}", f"text {number}") for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore.create(tmp_path / "index", SETTINGS)


def everything(store: FolderStore) -> dict[str, Any]:
    with store.snapshot() as snapshot:
        return content(snapshot)


def all_facts(store: FolderStore) -> list[SegmentFacts]:
    with store.snapshot() as snapshot:
        return snapshot.segment_facts()


def files(store: FolderStore) -> list[Path]:
    return sorted((store.folder / "segments").iterdir())


def flip(path: Path, position: int = -1) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# --- adding, replacing, deleting


def test_add_and_replace(store: FolderStore) -> None:
    changed = replace(DOCUMENTS[1], text="changed")
    with store.writer() as writer:
        put(writer, *DOCUMENTS[:3])
        put(writer, changed, DOCUMENTS[3])
        found = writer.known(["id 0", "id 1", "id 99"])
    assert found == {
        "id 0": (document_checksum(DOCUMENTS[0]), ""),
        "id 1": (document_checksum(changed), ""),
    }
    remaining = [DOCUMENTS[0], DOCUMENTS[2], changed, DOCUMENTS[3]]
    assert everything(store) == {each.id: expected(each) for each in remaining}
    with store.snapshot() as snapshot:
        assert [stored.document for stored in snapshot.documents()] == remaining
        assert list(snapshot.deleted_ordinals()) == [2]
        assert snapshot.view.vector_count == sum(
            len(vectors_of(each)) for each in [*DOCUMENTS[:4], changed]
        )


def test_adding_nothing_writes_nothing(store: FolderStore) -> None:
    with store.writer() as writer:
        writer.add([], [])
    assert files(store) == []
    with store.snapshot() as snapshot:
        assert snapshot.view.generation == 0


def test_delete_says_what_was_there(store: FolderStore) -> None:
    with store.writer() as writer:
        put(writer, *DOCUMENTS[:3])
        assert writer.delete(["id 2", "nothing", "id 0", "id 2"]) == ["id 2", "id 0"]
        assert writer.delete(["id 2"]) == []
    assert everything(store) == {"id 1": expected(DOCUMENTS[1])}


def test_numbers_are_never_used_twice(store: FolderStore) -> None:
    numbers = []
    with store.writer() as writer:
        for each in DOCUMENTS[:5]:
            put(writer, each)
            writer.delete([each.id])
            writer.compact()
        put(writer, DOCUMENTS[5])
        numbers = [facts.number for facts in all_facts(store)]
    with store.snapshot() as snapshot:
        assert list(snapshot.view.ordinals) == [6]
    assert numbers == [6]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e6])
def test_vectors_that_do_not_fit_are_refused(store: FolderStore, bad: float) -> None:
    vectors = np.ones((2, DIMENSION), dtype=np.float32)
    vectors[1, 3] = bad  # the largest half-precision number is 65504
    with store.writer() as writer:
        put(writer, DOCUMENTS[0])
        with pytest.raises(IndexFolderError, match="vector_type='float32'"):
            writer.add([DOCUMENTS[1]], [DocumentVectors(vectors)])
    assert everything(store) == {"id 0": expected(DOCUMENTS[0])}
    assert problems(store) == []


def test_an_error_within_a_transaction_undoes_all_of_it(store: FolderStore) -> None:
    with store.writer() as writer:
        put(writer, *DOCUMENTS[:2])
    before = everything(store)
    twice = [replace(DOCUMENTS[0], text="new"), DOCUMENTS[3], DOCUMENTS[3]]
    with pytest.raises(IndexFolderError), store.writer() as writer:
        writer.add(twice, encode(twice))  # ids must be distinct
    assert everything(store) == before
    assert problems(store) == []
    assert len(files(store)) == 1


def test_a_note_can_be_removed(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path / "noted", SETTINGS, {"name": "value", "other": "stays"})
    with store.writer() as writer:
        writer.forget("name")
    with store.snapshot() as snapshot:
        assert (snapshot.note("name"), snapshot.note("other")) == (None, "stays")
    assert FolderStore.open(store.folder).settings == SETTINGS


def test_orphans_are_removed(store: FolderStore) -> None:
    with store.writer() as writer:
        put(writer, DOCUMENTS[0])
    named = files(store)
    for name in ("00000099.safetensors", "00000002.tmp"):
        (store.folder / "segments" / name).write_bytes(b"left behind")
    with store.writer():
        assert files(store) == named
    assert everything(store) == {"id 0": expected(DOCUMENTS[0])}


@pytest.mark.parametrize("field", ["id", "title", "text", "metadata"])
def test_checksums_cover_all_of_a_document(field: str) -> None:
    document = Document("a", "b", "c", {"d": 1})
    changes: dict[str, Any] = {field: {"d": 2} if field == "metadata" else "x"}
    other = replace(document, **changes)
    assert document_checksum(document) != document_checksum(other)
    assert document_checksum(document) == document_checksum(replace(document, origin="there"))


def test_checksums_do_not_depend_on_the_order_of_keys() -> None:
    left, right = Document("a", "", "", {"x": 1, "y": 2}), Document("a", "", "", {"y": 2, "x": 1})
    assert document_checksum(left) == document_checksum(right)


# --- merging


def numbered(number: int, size: int) -> DocumentVectors:
    """Make so many vectors and so many tokens, all of which show a number."""
    return DocumentVectors(
        np.full((size, DIMENSION), number, np.float32),
        np.full(size, number, np.int64),
        np.full((size, 2), number, np.int64),
        np.full(size * bytes_per_token("signs", DIMENSION), number % 256, np.uint8),
    )


def single_adds(writer: FolderWriter, sizes: list[int]) -> None:
    for number, size in enumerate(sizes):
        writer.add([Document(f"{number}", "")], [numbered(number, size)])


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        pytest.param([4] * 150, 16, id="equal"),
        pytest.param([100, 120] * 50, 16, id="two sizes, on both sides of a power of two"),
        pytest.param([*([1] * 7), 500] * 15, 48, id="a large one now and then"),
        pytest.param([0] * 60, 16, id="without vectors"),
    ],
)
def test_many_single_adds_leave_few_segments(
    store: FolderStore, sizes: list[int], most: int
) -> None:
    seen = []
    with store.writer() as writer:
        for number, size in enumerate(sizes):
            writer.add([Document(f"{number}", "")], [numbered(number, size)])
            seen.append(len(files(store)))
    assert max(seen) <= most
    with store.snapshot() as snapshot:
        view = snapshot.view
        assert list(view.ordinals) == list(range(1, len(sizes) + 1))
        assert list(np.diff(view.offsets)) == sizes
        stored = view.vectors(0, view.vector_count)
        assert list(view.token_counts) == sizes
        for number, size in enumerate(sizes):
            assert view.codes_of(number).tolist() == numbered(number, size).codes.tolist()
            assert view.layout_of(number).owners.tolist() == [number] * size
            assert view.layout_of(number).spans.tolist() == [[number, number]] * size
    if sum(sizes):
        assert list(stored[:, 0]) == list(np.repeat(np.arange(len(sizes)), sizes))
    assert problems(store) == []


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=300))
@settings(max_examples=60)
def test_merges_are_few_and_each_doubles_what_it_takes(sizes: list[int]) -> None:
    facts: list[SegmentFacts] = []
    rewritten: dict[int, int] = {}
    for number, size in enumerate(sizes):
        facts.append(SegmentFacts(number, number, 1, 1, size, "", 1.0))
        while run := writer_module._mergeable_run(facts):
            total = sum(segment.bytes for segment in run)
            assert len(run) >= 8
            assert run == facts[-len(run) :], "only the newest neighbours are merged"
            assert all(2 * segment.bytes <= total for segment in run)
            for later in range(run[0].number, number + 1):
                rewritten[later] = rewritten.get(later, 0) + 1
            merged = SegmentFacts(run[0].number, run[0].first, 1, 1, total, "", 1.0)
            facts = [*facts[: -len(run)], merged]
    ratio = sum(sizes) / min(sizes)
    assert max(rewritten.values(), default=0) <= np.log2(max(ratio, 1))


def test_merging_stops_at_the_largest_size(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "SEGMENT_BYTES", 20_000)
    with store.writer() as writer:
        single_adds(writer, [10] * 250)
    sizes = [facts.bytes for facts in all_facts(store)]
    assert max(sizes) <= 20_000
    assert sum(sizes) > 2 * 20_000
    assert len(sizes) < 30


def test_positions_are_stable_until_compaction(store: FolderStore) -> None:
    """Structures built on the vectors grow with them, so no vector may change its place."""
    seen = np.zeros((0, DIMENSION), dtype=np.float32)
    epochs = set()
    choose = random.Random(0)
    with store.writer() as writer:
        for number in range(60):
            put(writer, Document(f"id {choose.randrange(20)}", f"text {number}"))
            writer.delete([f"id {choose.randrange(20)}"])
            with store.snapshot() as snapshot:
                view = snapshot.view
                now = view.vectors(0, view.vector_count)
                epochs.add(view.epoch)
            assert np.array_equal(now[: len(seen)], seen)
            seen = now
        assert epochs == {0}
        writer.compact()
    with store.snapshot() as snapshot:
        assert snapshot.view.epoch == 1
        assert 0 < snapshot.view.vector_count < len(seen)


# --- compaction


def test_compaction_drops_dead_vectors_and_frees_bytes(store: FolderStore) -> None:
    large = [Document(f"id {n}", "word " * 2000) for n in range(40)]
    vectors = [numbered(n, 50) for n in range(40)]
    with store.writer() as writer:
        writer.add(large, vectors)
        writer.delete([each.id for each in large[5:]])
        before = everything(store)
        bytes_before = sum(path.stat().st_size for path in files(store))
        writer.compact()
        assert everything(store) == before
    with store.snapshot() as snapshot:
        assert snapshot.view.vector_count == 5 * 50
        assert list(snapshot.view.token_counts) == [50] * 5
        assert snapshot.view.live.all()
        assert len(snapshot.deleted_ordinals()) == 0
        assert sum(facts.bytes for facts in snapshot.segment_facts()) < bytes_before / 4
    assert sum(path.stat().st_size for path in files(store)) < bytes_before / 4
    assert problems(store) == []


def test_compaction_gives_the_database_back_too(store: FolderStore) -> None:
    path = store.folder / "index.sqlite"
    choose = random.Random(0)
    with store.writer() as writer:
        texts = [" ".join(str(choose.random()) for _ in range(2000)) for _ in range(10)]
        put(writer, *(Document(f"{n}", text) for n, text in enumerate(texts)))
        writer.delete([f"{n}" for n in range(1, 10)])
    before = path.stat().st_size
    with store.writer() as writer:
        writer.compact()
    assert path.stat().st_size < before / 2


def test_compaction_of_nothing(store: FolderStore) -> None:
    with store.writer() as writer:
        writer.compact()
        assert everything(store) == {}
        put(writer, *DOCUMENTS[:3])
        writer.delete([each.id for each in DOCUMENTS[:3]])
        writer.compact()
    assert files(store) == []
    assert everything(store) == {}
    assert problems(store) == []


def test_compaction_keeps_segments_to_their_size(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "SEGMENT_BYTES", 5_000)
    with store.writer() as writer:
        single_adds(writer, [10] * 60)
        writer.compact()
    facts = all_facts(store)
    assert 1 < len(facts) < 20
    assert max(each.bytes for each in facts) <= 5_000
    assert problems(store) == []


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
@pytest.mark.parametrize("rewrite", ["compact", "merge"])
def test_damage_is_not_rewritten_as_if_it_were_sound(
    store: FolderStore, damage: str, rewrite: str
) -> None:
    """A copy of a damaged segment would get a checksum of its own, and never be found."""
    with store.writer() as writer:
        single_adds(writer, [4] * 7)
    path = segment_path(store.folder, 3)
    if damage == "flipped":
        flip(path)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    with pytest.raises(IndexFolderError) as caught, store.writer() as writer:
        writer.compact() if rewrite == "compact" else put(writer, DOCUMENTS[0])
    assert f"{path} is damaged" in str(caught.value)
    assert f"`pseudoquery verify {store.folder} --repair`" in str(caught.value)
    found = problems(store)
    assert len(found) == 1
    assert found[0].startswith("segment 3: ")


# --- a failing disk


def test_a_segment_that_can_t_be_written_leaves_no_trace(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.writer() as writer:
        put(writer, DOCUMENTS[0])
    before = files(store)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pseudoquery.files.os.fsync", fail)
    with pytest.raises(IndexFolderError, match="no space is left"), store.writer() as writer:
        put(writer, DOCUMENTS[1])
    assert files(store) == before
    assert everything(store) == {"id 0": expected(DOCUMENTS[0])}


def test_every_commit_is_synced(store: FolderStore) -> None:
    with store.writer() as writer:
        assert writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(sqlite3.connect(store.folder / "index.sqlite")) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
