"""Any damage is found, and what can be made anew from the documents is."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import RESTORE, _segment_problem, problems, repair
from tests.support.crash_writer import SETTINGS, content, encode, expected, put

DOCUMENTS = [
    Document(
        f"id {number}", f"some text with the number {number}", f"title {number}", {"n": number}
    )
    for number in range(12)
]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """An index of three segments with documents 0-3, 4-7 and 8-11, of which 1 and 4 are deleted."""
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        for start in (0, 4, 8):
            put(writer, *DOCUMENTS[start : start + 4])
        writer.delete(["id 1", "id 4"])
    return made


LIVING = {
    document.id: expected(document) for document in DOCUMENTS if document.id not in ("id 1", "id 4")
}


def everything(store: FolderStore) -> dict[str, Any]:
    with FolderStore.open(store.folder).snapshot() as snapshot:
        return content(snapshot)


def execute(store: FolderStore, *statements: str) -> None:
    """Change the database behind the store's back."""
    path = store.folder / "index.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_what_was_written_is_sound(store: FolderStore) -> None:
    assert problems(store) == []
    assert repair(store, encode) == 0
    assert everything(store) == LIVING


def test_an_empty_index_is_sound(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path / "index", SETTINGS)
    assert problems(store) == []
    assert repair(store, encode) == 0
    assert problems(store) == []


# --- damaged segments


def test_every_flipped_bit_of_a_segment_is_found(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    with store.snapshot() as snapshot:
        facts = next(facts for facts in snapshot.segment_facts() if facts.number == 2)
    assert _segment_problem(store, facts) == ""
    header = 8 + int.from_bytes(data[:8], "little")
    for bit in (*range(8 * header), *range(8 * header, 8 * len(data), 7)):
        path.write_bytes(flipped(data, bit))
        assert _segment_problem(store, facts), f"bit {bit}"
    for bit in random.Random(0).sample(range(8 * len(data)), 15):
        path.write_bytes(flipped(data, bit))
        (found,) = problems(store)
        assert found.startswith("segment 2: ")


def test_no_vector_is_read_from_a_damaged_segment(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    choose = random.Random(1)
    bits = [*choose.sample(range(8 * header), 50), *choose.sample(range(8 * len(data)), 100)]
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        with pytest.raises(IndexFolderError, match="--repair"):
            everything(store)
    path.write_bytes(data)
    assert everything(store) == LIVING


def test_documents_are_read_though_vectors_are_damaged(store: FolderStore) -> None:
    flip_vector(store)
    with FolderStore.open(store.folder).snapshot() as snapshot:
        assert snapshot.count() == 10
        assert snapshot.get("id 5") is not None
        assert [stored.document.id for stored in snapshot.documents()] == list(LIVING)
        assert len(snapshot.search_fulltext("text", None, 20)) == 10
    assert FolderStore.open(store.folder).facts()["documents"] == 10


def truncate(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    path.write_bytes(path.read_bytes()[:-7])


def extend(store: FolderStore) -> None:
    with segment_path(store.folder, 2).open("ab") as file:
        file.write(b"more")


def empty(store: FolderStore) -> None:
    segment_path(store.folder, 2).write_bytes(b"")


def remove(store: FolderStore) -> None:
    segment_path(store.folder, 2).unlink()


def swap(store: FolderStore) -> None:
    left, right = segment_path(store.folder, 2), segment_path(store.folder, 3)
    first, second = left.read_bytes(), right.read_bytes()
    left.write_bytes(second)
    right.write_bytes(first)


def replace_by_older(store: FolderStore) -> None:
    shutil.copy(segment_path(store.folder, 1), segment_path(store.folder, 2))


def flip_vector(store: FolderStore) -> None:
    path = segment_path(store.folder, 2)
    data = path.read_bytes()
    path.write_bytes(flipped(data, 8 * (len(data) - 1)))


def damage_all(store: FolderStore) -> None:
    for number in (1, 2, 3):
        segment_path(store.folder, number).write_bytes(b"gone")


Damage = Callable[[FolderStore], None]
SEGMENT_DAMAGES: list[Damage] = [
    truncate,
    extend,
    empty,
    remove,
    swap,
    replace_by_older,
    flip_vector,
    damage_all,
]


@pytest.mark.parametrize("damage", SEGMENT_DAMAGES)
def test_damaged_segments_are_found_and_repaired(store: FolderStore, damage: Damage) -> None:
    damage(store)
    broken = [1, 2, 3] if damage == damage_all else [2, 3] if damage == swap else [2]
    found = [sentence.split(":")[0] for sentence in problems(store)]
    assert found == [f"segment {number}" for number in broken]
    living = {1: 3, 2: 3, 3: 4}
    assert repair(store, encode) == sum(living[number] for number in broken)
    assert problems(store) == []
    assert everything(store) == LIVING, "deletions stay deleted"
    with store.writer() as writer:
        put(writer, DOCUMENTS[1])
        writer.compact()
    assert everything(store) == LIVING | {"id 1": expected(DOCUMENTS[1])}
    assert problems(store) == []


@pytest.mark.parametrize("damage", [truncate, remove, flip_vector])
def test_a_damaged_segment_of_deleted_documents_only(store: FolderStore, damage: Damage) -> None:
    with store.writer() as writer:
        writer.delete([document.id for document in DOCUMENTS[4:8]])
    damage(store)
    assert len(problems(store)) == 1
    assert repair(store, encode) == 0
    assert problems(store) == []
    assert set(everything(store)) == {f"id {number}" for number in (0, 2, 3, 8, 9, 10, 11)}
    with store.snapshot() as snapshot:
        assert [facts.number for facts in snapshot.segment_facts()] == [1, 3]


def test_repair_of_the_only_segment_after_all_was_deleted(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path / "index", SETTINGS)
    with store.writer() as writer:
        put(writer, DOCUMENTS[0])
        writer.delete(["id 0"])
    segment_path(store.folder, 1).unlink()
    assert repair(store, encode) == 0
    assert everything(store) == {}
    assert problems(store) == []


def test_repair_tells_structures_to_start_anew(store: FolderStore) -> None:
    def epoch() -> int:
        with store.snapshot() as snapshot:
            return snapshot.view.epoch

    before = epoch()
    truncate(store)
    repair(store, encode)
    assert epoch() > before


def test_repair_changes_nothing_that_is_sound(store: FolderStore) -> None:
    contents = {number: segment_path(store.folder, number).read_bytes() for number in (1, 3)}
    flip_vector(store)
    repair(store, encode)
    for number, data in contents.items():
        assert segment_path(store.folder, number).read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        "norm = norm / 2",
        "documents = documents + 1",
        "vectors = vectors - 1",
        "bytes = bytes + 1",
        "sha256 = replace(sha256, substr(sha256, 1, 1), 'x')",
    ],
)
def test_what_is_known_of_a_segment_is_checked_too(store: FolderStore, change: str) -> None:
    execute(store, f"UPDATE segments SET {change} WHERE number = 3")
    (found,) = problems(store)
    assert found.startswith("segment 3: ")
    assert repair(store, encode) == 4
    assert problems(store) == []
    assert everything(store) == LIVING


# --- damaged documents


@pytest.mark.parametrize(
    "change",
    [
        "text = text || '.'",
        "text = CAST(text AS BLOB)",
        "text = CAST(x'ff' AS TEXT)",
        "title = ''",
        "id = 'other'",
        "metadata = '{\"n\": 6}'",
        "metadata = 'no JSON'",
        "metadata = '[]'",
        "checksum = zeroblob(16)",
    ],
)
def test_a_changed_document_is_found(store: FolderStore, change: str) -> None:
    execute(store, f"UPDATE documents SET {change} WHERE id = 'id 5'")
    found = [sentence for sentence in problems(store) if sentence.startswith("document ")]
    name = "other" if change.startswith("id") else "id 5"
    assert found == [f"document '{name}': its content is not what was written"]


def test_metadata_that_can_t_be_read_gets_a_sentence(store: FolderStore) -> None:
    execute(store, "UPDATE documents SET metadata = 'no JSON' WHERE id = 'id 5'")
    with pytest.raises(IndexFolderError, match="the document 'id 5' in index"):
        everything(store)


@pytest.mark.parametrize("drop_trigger", [False, True])
def test_a_lost_document_is_found(store: FolderStore, drop_trigger: bool) -> None:
    statements = ["DROP TRIGGER documents_removed"] if drop_trigger else []
    execute(store, *statements, "DELETE FROM documents WHERE id = 'id 5'")
    sentence = f"vectors are stored for lost documents: ordinal 6 ({RESTORE})"
    assert sentence in problems(store)
    with pytest.raises(IndexFolderError, match="the document with ordinal 6 in index"):
        everything(store)
    repair(store, encode)
    assert sentence in problems(store), "what is lost is not passed over in silence"


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (
            "DELETE FROM deleted WHERE ordinal = 2",
            [f"vectors are stored for lost documents: ordinal 2 ({RESTORE})"],
        ),
        (
            "DELETE FROM segments WHERE number = 2",
            [
                f"no vectors are stored for 'id 5', 'id 6', 'id 7' ({RESTORE})",
                "no vectors are stored for deleted documents: ordinal 5 "
                "(`pseudoquery compact {folder}` puts this right)",
            ],
        ),
        (
            "DELETE FROM segments WHERE number IN (2, 3)",
            [
                f"no vectors are stored for 'id 5', 'id 6', 'id 7' and 4 more ({RESTORE})",
                "no vectors are stored for deleted documents: ordinal 5 "
                "(`pseudoquery compact {folder}` puts this right)",
            ],
        ),
        (
            "UPDATE documents SET ordinal = 99 WHERE id = 'id 5'",
            [
                f"no vectors are stored for 'id 5' ({RESTORE})",
                f"vectors are stored for lost documents: ordinal 6 ({RESTORE})",
            ],
        ),
    ],
)
def test_documents_and_vectors_are_compared(
    store: FolderStore, change: str, sentences: list[str]
) -> None:
    execute(store, change)
    expected = [sentence.replace("{folder}", str(store.folder)) for sentence in sentences]
    assert [sentence for sentence in problems(store) if "stored" in sentence] == expected


def test_a_deleted_document_without_vectors_is_found_and_compaction_puts_it_right(
    store: FolderStore,
) -> None:
    execute(store, "INSERT INTO deleted VALUES (77)")
    assert problems(store) == [
        "no vectors are stored for deleted documents: ordinal 77 "
        f"(`pseudoquery compact {store.folder}` puts this right)"
    ]
    with store.writer() as writer:
        writer.compact()
    assert problems(store) == []


def test_a_document_in_two_segments_is_found(store: FolderStore) -> None:
    execute(
        store,
        "INSERT INTO segments SELECT 9, first, documents, vectors, bytes, sha256, norm "
        "FROM segments WHERE number = 1",
    )
    shutil.copy(segment_path(store.folder, 1), segment_path(store.folder, 9))
    (sentence,) = problems(store)
    assert sentence.startswith("vectors are stored twice or out of order for 'id 0', ")


# --- full text and the database


def test_full_text_out_of_step_is_found_and_repaired(store: FolderStore) -> None:
    def ranked() -> list[tuple[int, float]]:
        with store.snapshot() as snapshot:
            return snapshot.search_fulltext("text OR number OR title", None, 100)

    before = ranked()
    assert len(before) == 10
    execute(
        store,
        "INSERT INTO fulltext(fulltext, rowid, title, text) "
        "SELECT 'delete', ordinal, title, text FROM documents WHERE id = 'id 5'",
    )
    assert len(ranked()) == 9
    assert problems(store) == ["the full-text index does not agree with the documents"]
    assert repair(store, encode) == 0
    assert problems(store) == []
    assert ranked() == before


def test_a_flipped_bit_of_the_database_is_found_or_harmless(store: FolderStore) -> None:
    """SQLite has no checksums of its own; ours cover the rows, and FTS5 and SQLite the rest."""
    path = store.folder / "index.sqlite"
    data = path.read_bytes()
    before = everything(store)
    found = 0
    for bit in random.Random(0).sample(range(8 * len(data)), 250):
        for leftover in store.folder.glob("index.sqlite-*"):
            leftover.unlink()
        path.write_bytes(flipped(data, bit))
        try:
            damage = problems(FolderStore.open(store.folder))
        except IndexFolderError as error:
            damage = [str(error)]
        found += bool(damage)
        if not damage:
            assert everything(store) == before, f"bit {bit}"
    assert found > 20


def test_every_flipped_bit_of_a_text_is_found(store: FolderStore) -> None:
    path = store.folder / "index.sqlite"
    data = path.read_bytes()
    text = DOCUMENTS[5].text.encode()
    assert data.count(text) == 1
    start = 8 * data.index(text)
    for bit in range(start, start + 8 * len(text), 5):
        path.write_bytes(flipped(data, bit))
        assert "document 'id 5': its content is not what was written" in problems(store)


def test_only_one_process_verifies_at_a_time(store: FolderStore) -> None:
    with store.writer(), pytest.raises(IndexFolderError, match="another process is writing"):
        problems(FolderStore.open(store.folder))


def change(store: FolderStore, *statements: str) -> None:
    with closing(sqlite3.connect(store.folder / "index.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = 1")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'old.title', 'old.text') "
            "WHERE name = 'documents_removed'",
            "documents_removed",
        ),
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'new.title', 'new.titlf') "
            "WHERE name = 'documents_added'",
            "documents_added",
        ),
        ("DROP TRIGGER fields_added", "fields_added"),
        (
            "CREATE TRIGGER another AFTER INSERT ON documents BEGIN DELETE FROM deleted; END",
            "another",
        ),
    ],
)
def test_a_changed_trigger_is_found_and_restored(
    store: FolderStore, statement: str, name: str
) -> None:
    change(store, statement)
    found = problems(FolderStore.open(store.folder))
    assert found == [f"index.sqlite: the trigger {name!r} is not what was made"]
    opened = FolderStore.open(store.folder)
    assert repair(opened, encode) == 0
    assert problems(opened) == []
    with opened.writer() as writer:
        writer.delete(["id 5"])
        put(writer, Document("new", "text", metadata={"n": 1}))
    assert problems(opened) == []


def test_an_unknown_table_is_told(store: FolderStore) -> None:
    change(store, "CREATE TABLE another (a)")
    assert problems(store) == ["index.sqlite: the table 'another' is not what was made"]


def test_a_changed_origin_is_found(store: FolderStore) -> None:
    with store.writer() as writer:
        put(writer, Document("new", "text", origin="docs.jsonl line 3"))
    assert problems(store) == []
    change(store, "UPDATE documents SET place = 'docs.jsonl line 2' WHERE id = 'new'")
    assert problems(store) == ["document 'new': its content is not what was written"]
