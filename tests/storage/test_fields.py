"""The table in which filters look values up: it says what the metadata says, or damage is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from pseudoquery.records import Document
from pseudoquery.storage.snapshot import WRONG_FIELDS
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems, repair
from tests.storage.test_filters import cases, holds
from tests.support.crash_writer import SETTINGS, encode, put


@settings(max_examples=60)
@given(case=cases())
def test_what_is_looked_up_satisfies_the_filter(
    case: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    metadata, where = case
    documents = [Document(f"{row}", "text", metadata=each) for row, each in enumerate(metadata)]
    with TemporaryDirectory() as folder:
        store = FolderStore.create(Path(folder) / "index", SETTINGS)
        with store.writer() as writer:
            put(writer, *documents)
            put(writer, *documents[::-2])  # replaced: they get new ordinals
        with store.snapshot() as snapshot:
            expected = [
                stored.ordinal
                for stored in snapshot.documents()
                if holds(stored.document.metadata, where)
            ]
            assert snapshot.matching_ordinals(where).tolist() == expected
            assert [stored.ordinal for stored in snapshot.documents(where)] == expected
            by_words = [ordinal for ordinal, _ in snapshot.search_fulltext("text", where, 100)]
            assert sorted(by_words) == expected


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        put(
            writer,
            *(Document(f"{n}", "text", metadata={"n": n, "tags": ["all"]}) for n in range(9)),
        )
        writer.delete(["3"])
    return made


def change(store: FolderStore, *statements: str) -> None:
    with closing(sqlite3.connect(store.folder / "index.sqlite")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM fields WHERE field = 'n' AND value = 5",
        "UPDATE fields SET value = 55 WHERE field = 'n' AND value = 5",
        "UPDATE fields SET kind = 'text' WHERE field = 'n' AND value = 5",
        "UPDATE fields SET ordinal = 100 WHERE field = 'n' AND value = 5",
        "INSERT INTO fields VALUES ('n', 'number', 5, 4)",
    ],
)
def test_a_wrong_table_is_found_and_made_anew(store: FolderStore, statement: str) -> None:
    assert problems(store) == []
    change(store, statement)
    assert problems(store) == [WRONG_FIELDS]
    assert repair(store, encode) == 0
    assert problems(store) == []
    with store.snapshot() as snapshot:
        assert snapshot.matching_ordinals({"n": 5}).tolist() == [6]
        assert len(snapshot.matching_ordinals({"tags": "all"})) == 8


def test_damaged_metadata_is_told_and_does_not_stop_a_repair(store: FolderStore) -> None:
    change(store, "UPDATE documents SET metadata = '{\"n\": 1' WHERE id = '5'")
    before = problems(store)
    assert before == ["document '5': its content is not what was written"]
    assert repair(store, encode) == 0
    assert problems(store) == before


def test_a_lookup_reads_no_documents(store: FolderStore) -> None:
    """Neither a filter on a field nor one on ids goes through all rows."""
    from pseudoquery.storage.filters import compile_lookups

    with closing(sqlite3.connect(store.folder / "index.sqlite")) as connection:
        for where in ({"n": 5}, {"n": {">": 3}}, {"n": [1, 2]}, {"id": ["1", "2"]}, {"id": "1"}):
            (lookup,) = compile_lookups(where)
            plan = connection.execute(f"EXPLAIN QUERY PLAN {lookup.select}", lookup.parameters)
            steps = [row[3] for row in plan]
            assert steps[0].startswith("SEARCH"), (where, steps)
