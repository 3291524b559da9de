"""Connections that are kept: they see every commit, and outlive neither a fork nor their index."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage import sqlite_readers as connections
from pseudoquery.storage.sqlite_readers import IDLE_CONNECTIONS
from pseudoquery.storage.store import IDENTITY, FolderStore
from tests.support.crash_writer import SETTINGS, put
from tests.support.stores import run_python

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """An index with one document, which was read: a connection waits."""
    made = filled(tmp_path / "index", "first")
    for _ in range(2):  # There was no log the first time, so that connection is not kept.
        assert ids(made) == ["first"]
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect how often a connection is opened, and how."""
    found: list[str] = []
    real = connections._open

    def counting(folder: Path, how: str, timeout: float = 5) -> sqlite3.Connection:
        found.append(how)
        return real(folder, how, timeout)

    monkeypatch.setattr(connections, "_open", counting)
    return found


def filled(folder: Path, *names: str) -> FolderStore:
    made = FolderStore.create(folder, SETTINGS)
    for name in names:
        add(made, name)
    return made


def add(store: FolderStore, name: str) -> None:
    with store.writer() as writer:
        put(writer, Document(name, f"the text of {name}"))


def ids(store: FolderStore) -> list[str]:
    with store.snapshot() as snapshot:
        return sorted(snapshot.ids().values())


def open_files(folder: Path) -> list[str]:
    """List the files of an index that this process has open; the log and its index come with it."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    paths = [str(link.readlink()) for link in links]
    return [path for path in paths if path.startswith(str(folder)) and "sqlite" in path]


# --- what is kept


def test_a_connection_is_used_again(store: FolderStore, opened: list[str]) -> None:
    for _ in range(3):
        assert ids(store) == ["first"]
    assert opened == []


def test_a_kept_connection_sees_every_commit(store: FolderStore, opened: list[str]) -> None:
    with store.writer() as writer:
        for name in "abc":
            put(writer, Document(name, "text"))
            assert name in ids(store)
        writer.delete(["a"])
        assert ids(store) == ["b", "c", "first"]
    assert opened == ["mode=ro", "mode=rw"], "the writer looks first, then writes"


def test_a_snapshot_stays_while_another_connection_commits(store: FolderStore) -> None:
    with store.snapshot() as snapshot:
        add(store, "second")
        assert sorted(snapshot.ids().values()) == ["first"]
        assert ids(store) == ["first", "second"]
    assert ids(store) == ["first", "second"]


def test_what_was_not_read_to_its_end_holds_nothing_back(store: FolderStore) -> None:
    add(store, "second")
    with store.snapshot() as snapshot:
        unfinished = snapshot.documents()
        assert next(unfinished).document.id == "first"
    add(store, "third")
    assert ids(store) == ["first", "second", "third"]
    with pytest.raises(sqlite3.ProgrammingError):
        next(unfinished)


def test_after_an_error_a_connection_is_not_used_again(
    store: FolderStore, opened: list[str]
) -> None:
    with pytest.raises(KeyError), store.snapshot():
        raise KeyError
    assert open_files(store.folder) == []
    assert ids(store) == ["first"]
    assert opened == ["mode=ro"]


def test_no_more_wait_than_are_kept(store: FolderStore) -> None:
    together = threading.Barrier(2 * IDLE_CONNECTIONS)

    def read(_: int) -> list[str]:
        with store.snapshot() as snapshot:
            together.wait(60)
            return sorted(snapshot.ids().values())

    with ThreadPoolExecutor(2 * IDLE_CONNECTIONS) as pool:
        assert (
            list(pool.map(read, range(2 * IDLE_CONNECTIONS))) == [["first"]] * 2 * IDLE_CONNECTIONS
        )
    assert len(store._readers._idle) == IDLE_CONNECTIONS


def test_an_index_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    made = filled(tmp_path / "index", "first")
    folder = made.folder
    for _ in range(2):
        ids(made)
    assert open_files(folder)
    gc.disable()  # It does not take a collection.
    try:
        del made
        assert open_files(folder) == []
    finally:
        gc.enable()


# --- what it must not outlive


@pytest.mark.parametrize("how", ["built anew", "moved here", "copied over"])
def test_another_index_in_its_place_is_refused(
    store: FolderStore, tmp_path: Path, how: str
) -> None:
    other = filled(tmp_path / "other", "other")
    if how == "copied over":
        shutil.copytree(other.folder, store.folder, dirs_exist_ok=True)
    else:
        shutil.rmtree(store.folder)
        if how == "moved here":
            other.folder.rename(store.folder)
        else:
            filled(store.folder, "other")
    for use in (lambda: ids(store), lambda: add(store, "second")):
        with pytest.raises(IndexFolderError, match="holds another index than when it was opened"):
            use()
    assert ids(FolderStore.open(store.folder)) == ["other"]


def test_a_backup_of_the_same_index_is_read(store: FolderStore, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(store.folder, backup)
    add(store, "second")
    assert ids(store) == ["first", "second"]
    shutil.rmtree(store.folder)
    backup.rename(store.folder)
    assert ids(store) == ["first"]
    add(store, "third")
    assert ids(store) == ["first", "third"]


def test_an_index_without_an_identity_is_used_as_ever(store: FolderStore) -> None:
    with closing(sqlite3.connect(store.folder / "index.sqlite")) as connection, connection:
        connection.execute("DELETE FROM settings WHERE name = ?", [IDENTITY])
    older = FolderStore.open(store.folder)
    add(older, "second")
    assert ids(older) == ["first", "second"]
    with pytest.raises(IndexFolderError, match="holds another index"):
        ids(FolderStore(store.folder, store.settings, "of another"))


WRITE = """
import sys
from pathlib import Path
from tests.storage.test_sqlite_readers import Document, FolderStore, put
with FolderStore.open(Path(sys.argv[1])).writer() as writer:
    for name in sys.argv[2:]:
        put(writer, Document(name, "text"))
    print("written", flush=True)
    sys.stdin.read()
"""


OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM state").fetchone()
connection.close()
"""


def test_a_log_that_another_process_has_begun_anew_is_read(store: FolderStore) -> None:
    # To close any file of that name ends this process's locks on it, and others take it for gone.
    (store.folder / "index.sqlite").open("rb").close()
    log = store.folder / "index.sqlite-wal"
    # A program that is not ours removes the log as it ends; it writes nothing to the file.
    run_python(OTHER, store.folder / "index.sqlite")
    assert not log.exists()
    command = [sys.executable, "-c", WRITE, str(store.folder), "second"]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        assert ids(store) == ["first", "second"]
        writer.communicate()
    assert ids(store) == ["first", "second"]


FORK = """
import os, sys
from pathlib import Path
from tests.storage.test_sqlite_readers import FolderStore, add, ids, open_files
store = FolderStore.open(Path(sys.argv[1]))
for number in range(5):
    for _ in range(2):
        assert len(ids(store)) == number + 1
    assert open_files(store.folder)
    child = os.fork()
    if not child:
        assert open_files(store.folder) == []
        assert len(ids(store)) == number + 1
        add(store, f"new {number}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(len(ids(store)))
"""


def test_a_fork_inherits_no_connection(store: FolderStore) -> None:
    assert run_python(FORK, store.folder) == "6"


# --- the log


def test_the_log_is_empty_after_a_writer_though_readers_wait(store: FolderStore) -> None:
    add(store, "second")
    assert (store.folder / "index.sqlite-wal").stat().st_size == 0
    alone = store.folder.parent / "alone"
    shutil.copytree(store.folder, alone, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    assert ids(FolderStore.open(alone)) == ["first", "second"]


def test_a_reader_at_work_keeps_the_log_and_delays_no_writer(store: FolderStore) -> None:
    with store.snapshot() as snapshot:
        add(store, "second")
        assert (store.folder / "index.sqlite-wal").stat().st_size > 0
        assert sorted(snapshot.ids().values()) == ["first"]
        with closing(connections.connect(store.folder, write=True)) as writer:
            connections.empty_log(writer)
            assert writer.execute("PRAGMA busy_timeout").fetchone() == (0,)
    add(store, "third")
    assert (store.folder / "index.sqlite-wal").stat().st_size == 0
    assert ids(store) == ["first", "second", "third"]


def test_a_log_that_cannot_be_emptied_is_no_loss(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def execute(self, *_: Any) -> Any:
            raise sqlite3.OperationalError("database or disk is full")

    connections.empty_log(Failing())  # type: ignore[arg-type]
    monkeypatch.setattr("pseudoquery.storage.store.empty_log", lambda _: None)
    add(store, "second")
    assert ids(store) == ["first", "second"]
    assert ids(FolderStore.open(store.folder)) == ["first", "second"]
