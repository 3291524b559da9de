"""The index folder: what is refused, what readers see, and who may write."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pseudoquery.errors import IndexFolderError, QueryError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage import store as store_module
from pseudoquery.storage.schema import FORMAT
from pseudoquery.storage.segments import Segment, SegmentFacts, map_segment, segment_path
from pseudoquery.storage.store import FolderStore, folder_store
from pseudoquery.storage.verify import problems
from tests.support import crash_writer
from tests.support.crash_writer import SETTINGS, content, expected, put
from tests.support.stores import SUPPORT, WRITE, A, B, C, everything, run_python


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """An index with the documents A and B."""
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A)
        put(writer, B)
    return made


def sentence_of(folder: Path) -> str:
    """Open an index that can't be opened, and return what the user is told."""
    with pytest.raises(IndexFolderError) as caught:
        FolderStore.open(folder)
    return str(caught.value)


def set_setting(folder: Path, name: str, value: object) -> None:
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE settings SET value = ? WHERE name = ?", [json.dumps(value), name]
        )


# --- creating and opening


def test_a_store_in_a_database_is_no_folder(store: FolderStore) -> None:
    assert folder_store(store) is store
    elsewhere: Any = SimpleNamespace(location="http://localhost:1/papers", engine="Milvus")
    with pytest.raises(QueryError) as caught:
        folder_store(elsewhere, "which checks its files itself")
    said = "http://localhost:1/papers is kept by Milvus, which checks its files itself."
    assert str(caught.value) == said


def test_settings_come_back(tmp_path: Path) -> None:
    settings = replace(SETTINGS, representation={"k": 3}, long="truncate", vector_type="float32")
    FolderStore.create(tmp_path / "a" / "b", settings, {"note": "kept"})
    again = FolderStore.open(tmp_path / "a" / "b")
    assert again.settings == settings
    with again.snapshot() as snapshot:
        assert snapshot.note("note") == "kept"
        assert snapshot.note("no note") is None
        assert snapshot.count() == 0


@pytest.mark.parametrize(
    ("vector_type", "exact"), [("float32", True), ("float16", False), ("int8", False)]
)
def test_vector_type_decides_what_is_stored(tmp_path: Path, vector_type: str, exact: bool) -> None:
    made = FolderStore.create(tmp_path / "index", replace(SETTINGS, vector_type=vector_type))
    vectors = np.linspace(0.1, 0.9, 8, dtype=np.float32)[None]
    with made.writer() as writer:
        writer.add([A], [DocumentVectors(vectors)])
    with made.snapshot() as snapshot:
        stored = snapshot.view.vectors(0, 1)
    assert np.allclose(stored, vectors, atol=4e-3)
    assert np.array_equal(stored, vectors) == exact


def test_unknown_vector_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexFolderError, match="float16, float32, int8"):
        FolderStore.create(tmp_path / "index", replace(SETTINGS, vector_type="int4"))
    assert not (tmp_path / "index").exists()


def test_an_index_is_not_made_over_another(store: FolderStore) -> None:
    before = everything(store)
    with pytest.raises(IndexFolderError, match="already holds an index"):
        FolderStore.create(store.folder, SETTINGS)
    assert everything(store) == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(IndexFolderError, match="is not empty and holds no index"):
        FolderStore.create(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file")
    with pytest.raises(IndexFolderError, match="index"):
        FolderStore.create(tmp_path / "index", SETTINGS)
    assert (tmp_path / "index").read_text() == "a file"


def test_a_creation_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    for name in ("lock", "index.sqlite.new", "index.sqlite.new-wal", "index.sqlite.new-shm"):
        (tmp_path / name).write_bytes(b"left behind")
    assert "it has no index.sqlite" in sentence_of(tmp_path)
    made = FolderStore.create(tmp_path, SETTINGS)
    with made.writer() as writer:
        put(writer, A)
    assert everything(FolderStore.open(tmp_path)) == {"a": expected(A)}


def test_what_is_no_index_is_named(tmp_path: Path) -> None:
    assert "there is no such folder" in sentence_of(tmp_path / "nowhere")
    assert "it has no index.sqlite" in sentence_of(tmp_path)
    assert "pseudoquery index DOCUMENTS --out" in sentence_of(tmp_path)


@pytest.mark.parametrize("content", [b"garbage " * 1000, b"", b"SQLite format 3\0" + b"\1" * 5000])
def test_garbage_gets_one_sentence(store: FolderStore, content: bytes) -> None:
    (store.folder / "index.sqlite").write_bytes(content)
    said = sentence_of(store.folder)
    assert "damaged" in said
    assert said.endswith("restore it from a backup, or build the index again.")


def test_a_truncated_database_gets_one_sentence(store: FolderStore) -> None:
    path = store.folder / "index.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(IndexFolderError, match=r"index\.sqlite is damaged"):
        everything(FolderStore.open(store.folder))


def test_another_database_is_no_index(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as connection:
        connection.execute("CREATE TABLE settings (name, value)")
    assert "is not an index of pseudoquery" in sentence_of(tmp_path)


def test_a_newer_format_says_to_upgrade(store: FolderStore) -> None:
    set_setting(store.folder, "format", FORMAT + 1)
    said = sentence_of(store.folder)
    assert f"its format is {FORMAT + 1}, this version reads up to {FORMAT}" in said
    assert said.endswith("pip install -U pseudoquery")


@pytest.mark.parametrize(
    ("name", "value"), [("vector_type", "float32"), ("fingerprint", "other"), ("dimension", 9)]
)
def test_a_changed_setting_is_noticed(store: FolderStore, name: str, value: object) -> None:
    set_setting(store.folder, name, value)
    assert "is damaged" in sentence_of(store.folder)


def test_ids_that_are_not_unicode_are_not_there(store: FolderStore) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.get("\x00") is None
    with pytest.raises(QueryError, match="not valid Unicode"), store.snapshot() as snapshot:
        snapshot.get("\udcff")
    with pytest.raises(QueryError, match="not valid Unicode"), store.writer() as writer:
        writer.delete(["a", "\udcff"])
    assert set(everything(store)) == {"a", "b"}, "the deletion was not carried out by half"


# --- readers and writers


def test_a_snapshot_does_not_change(store: FolderStore) -> None:
    other = FolderStore.open(store.folder)
    with store.snapshot() as snapshot:
        before = content(snapshot)
        found = snapshot.search_fulltext("text", None, 10)
        with other.writer() as writer:
            put(writer, replace(A, text="another text"))
            assert content(snapshot) == before
            writer.delete(["b"])
            assert content(snapshot) == before
            put(writer, C)
            writer.compact()
        assert content(snapshot) == before
        assert snapshot.search_fulltext("text", None, 10) == found
        assert snapshot.count() == 2
    assert set(everything(store)) == {"a", "c"}


def test_readers_are_undisturbed(tmp_path: Path) -> None:
    """Two threads share a store, one has its own; whatever is written, all they see agrees."""
    shared = FolderStore.create(tmp_path / "index", SETTINGS)
    done = threading.Event()
    wrong: list[str] = []
    generations: list[int] = []

    def read(opened: FolderStore) -> None:
        while not done.is_set():
            try:
                with opened.snapshot() as snapshot:
                    found = content(snapshot)
                    generations.append(snapshot.view.generation)
                    if found != {id_: expected(stored.document) for id_, stored in found.items()}:
                        wrong.append(f"vectors differ in generation {snapshot.view.generation}")
                    if len(found) != snapshot.count():
                        wrong.append(f"counts differ in generation {snapshot.view.generation}")
            except Exception as error:
                wrong.append(repr(error))

    readers = [
        threading.Thread(target=read, args=[opened])
        for opened in (shared, shared, FolderStore.open(tmp_path / "index"))
    ]
    for reader in readers:
        reader.start()
    choose = random.Random(0)
    with FolderStore.open(tmp_path / "index").writer() as writer:
        while len(set(generations)) < 40 and not wrong:
            crash_writer.carry_out(writer, crash_writer.random_operation(choose))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert problems(shared) == []


def test_a_segment_replaced_while_opening_is_looked_for_again(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that compacts each time a reader is about to map makes it wait, not fail."""
    other = FolderStore.open(store.folder)
    left = iter(range(8))

    def map_late(folder: Path, facts: SegmentFacts) -> Segment:
        if next(left, None) is not None:
            with other.writer() as writer:
                writer.compact()
        return map_segment(folder, facts)

    monkeypatch.setattr(store_module, "map_segment", map_late)
    assert set(everything(FolderStore.open(store.folder))) == {"a", "b"}
    assert next(left, None) is None


def test_a_missing_segment_is_named(store: FolderStore) -> None:
    path = segment_path(store.folder, 1)
    path.unlink()
    with pytest.raises(IndexFolderError) as caught:
        everything(FolderStore.open(store.folder))
    assert f"{path} is damaged: it is missing" in str(caught.value)
    assert f"`pseudoquery verify {store.folder} --repair`" in str(caught.value)


def test_a_second_writer_is_refused(store: FolderStore) -> None:
    with store.writer() as writer:
        with (
            pytest.raises(IndexFolderError, match="another process is writing"),
            FolderStore.open(store.folder).writer(),
        ):
            pass
        said = run_python(
            "import sys, crash_writer\nfrom pathlib import Path\n"
            "from pseudoquery.errors import PseudoqueryError\n"
            f"store = crash_writer.FolderStore.open(Path(sys.argv[1]))\n{WRITE}",
            store.folder,
        )
        assert said == (
            f"another process is writing to {store.folder}; wait until it has finished, "
            "then run this again."
        )
        put(writer, C)
    assert set(everything(store)) == {"a", "b", "c"}


def test_a_dead_writer_does_not_block(store: FolderStore) -> None:
    program = (
        "import os, signal, sys, crash_writer\nfrom pathlib import Path\n"
        "with crash_writer.FolderStore.open(Path(sys.argv[1])).writer() as writer:\n"
        "    crash_writer.put(writer, crash_writer.Document('d', 'from the dead'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run([sys.executable, "-c", program, str(store.folder)], env=environment)
    assert done.returncode == -9
    with store.writer() as writer:
        put(writer, C)
    assert set(everything(store)) == {"a", "b", "c", "d"}


def test_an_error_while_writing_releases_the_lock(store: FolderStore) -> None:
    with pytest.raises(ZeroDivisionError), store.writer():
        raise ZeroDivisionError
    with store.writer() as writer:
        writer.delete(["a"])
    assert set(everything(store)) == {"b"}


def test_any_text_can_be_stored_and_removed(store: FolderStore) -> None:
    strange = [
        Document("nul\x00id", "a\x00b text", "ti\x00tle", {"nul\x00": "\x00"}),
        Document("emoji 😀", "😀 family 👨‍👩‍👧 text", "👍"),
        Document("rtl", "שלום text عالم", "\u202eright to left"),
        Document("quote \" ' ;--", "text '; DROP TABLE documents; --", '"'),
        Document("long", "text " * 200_000, "", {"deep": [[{"a": None}]]}),
        Document("empty", "", ""),
        Document("whitespace", " \n\t\r\u00a0", " "),
    ]
    with store.writer() as writer:
        put(writer, *strange)
    found = everything(store)
    wanted = [document.id for document in strange]
    assert [found[id_] for id_ in wanted] == [expected(document) for document in strange]
    assert problems(store) == []
    with store.snapshot() as snapshot:
        assert len(snapshot.search_fulltext("text", None, 100)) == 2 + 5
    with store.writer() as writer:
        assert writer.delete(wanted) == wanted
        writer.compact()
    assert everything(store) == {"a": expected(A), "b": expected(B)}
    assert problems(store) == []


def test_fulltext_follows_additions_updates_and_deletions(store: FolderStore) -> None:
    def ids(word: str, where: dict[str, Any] | None = None) -> list[str]:
        with store.snapshot() as snapshot:
            found = snapshot.search_fulltext(word, where, 10)
            return [snapshot.by_ordinal(number).document.id for number, _ in found]

    assert sorted(ids("text")) == ["a", "b"]
    assert ids("text", {"id": "b"}) == ["b"]
    with store.writer() as writer:
        put(writer, replace(A, text="a giraffe"))
        writer.delete(["b"])
        put(writer, C)
    assert ids("text") == ["c"]
    assert ids("giraffes") == ["a"], "words are stemmed"
    assert ids("A") == ["a"], "titles count"
