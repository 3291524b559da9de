"""An index folder on a disk that is full, can only be read, or is forbidden."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from tests.support.crash_writer import SETTINGS, expected, put
from tests.support.disks import remount, small_disk
from tests.support.stores import WRITE, A, everything, run_python

NOBODY = 65534
AS_NOBODY = f"""
import os, sys
import numpy, sqlite3, torch, crash_writer, mmap
import pseudoquery.storage.store, pseudoquery.storage.verify
from pathlib import Path
from pseudoquery.errors import PseudoqueryError
os.setgid({NOBODY}); os.setuid({NOBODY})
store = pseudoquery.storage.store.FolderStore.open(Path(sys.argv[1]))
"""
READ = """
with store.snapshot() as snapshot:
    matches = snapshot.search_fulltext("text", None, 9)
    print(sorted(crash_writer.content(snapshot)), matches != [])
"""


def fill(made: FolderStore, words: int, vectors_each: int) -> dict[str, Document]:
    """Add documents until the disk is full, and return those that were acknowledged."""
    acknowledged: dict[str, Document] = {}
    choose = random.Random(0)
    vectors = np.ones((vectors_each, made.settings.dimension), np.float32)
    for number in range(10_000):
        text = " ".join(str(choose.random()) for _ in range(words))
        document = Document(f"document {number}", text)
        try:
            with made.writer() as writer:
                writer.add([document], [vectors])
        except IndexFolderError as error:
            assert "no space is left on the disk" in str(error)  # noqa: PT017
            return acknowledged
        acknowledged[document.id] = document
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize(("words", "vectors"), [(500, 1), (1, 2000), (100, 100)])
def test_a_full_disk_loses_nothing(tmp_path: Path, words: int, vectors: int) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "size=1500k"):
        made = FolderStore.create(disk / "index", SETTINGS)
        acknowledged = fill(made, words, vectors)
        assert acknowledged
        for reader in (made, FolderStore.open(disk / "index")):
            found = everything(reader)
            assert (
                acknowledged.items()
                <= {id_: document for id_, (document, _) in found.items()}.items()
            )
            assert all(len(arrays) == vectors for _, arrays in found.values())
            # The one that failed may have been committed before the disk was full.
            assert len(found) - len(acknowledged) in (0, 1)
        remount(disk, "size=20m")
        assert problems(made) == []
        with made.writer() as writer:
            put(writer, A)
        assert everything(made) == found | {"a": expected(A)}


def test_a_limit_on_file_sizes_loses_nothing(tmp_path: Path) -> None:
    """Where nothing can be mounted, a limit of the process stands in for a full disk."""
    FolderStore.create(tmp_path / "index", SETTINGS)
    program = """
import resource, sys, crash_writer
from pathlib import Path
from pseudoquery.errors import PseudoqueryError
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
store = crash_writer.FolderStore.open(Path(sys.argv[1]))
choose = crash_writer.random.Random(0)
for number in range(10_000):
    text = " ".join(str(choose.random()) for _ in range(500))
    try:
        with store.writer() as writer:
            crash_writer.put(writer, crash_writer.Document(str(number), text))
    except PseudoqueryError as error:
        print(error)
        break
    print(number, flush=True)
"""
    *numbers, said = run_python(program, tmp_path / "index").splitlines()
    assert numbers
    assert "index" in said
    store = FolderStore.open(tmp_path / "index")
    found = everything(store)
    assert set(numbers) <= set(found)
    assert len(found) - len(numbers) in (0, 1)
    assert found == {id_: expected(document) for id_, (document, _) in found.items()}
    assert problems(store) == []


def test_a_disk_that_can_only_be_read(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "size=10m"):
        made = FolderStore.create(disk / "index", SETTINGS)
        with made.writer() as writer:
            put(writer, A)
        remount(disk, "ro")
        again = FolderStore.open(disk / "index")
        assert everything(again) == {"a": expected(A)}
        with (
            pytest.raises(IndexFolderError, match=r"on a disk that can only be read\."),
            again.writer(),
        ):
            pass
        with pytest.raises(IndexFolderError, match=r"on a disk that can only be read\."):
            FolderStore.create(disk / "other", SETTINGS)
        remount(disk, "rw")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that anyone can reach (pytest's own are private)."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("left", ["nothing", "an empty log", "a log"])
def test_a_folder_without_write_permission_can_be_read(public: Path, left: str) -> None:
    made = FolderStore.create(public / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A)
        if left == "a log":  # of a writer that is at work
            assert run_python(AS_NOBODY + READ, made.folder) == "['a'] True"
    if left == "an empty log":
        (made.folder / "index.sqlite-shm").unlink(missing_ok=True)
        (made.folder / "index.sqlite-wal").write_bytes(b"")
    assert run_python(AS_NOBODY + READ, made.folder) == "['a'] True"
    said = run_python(AS_NOBODY + WRITE, made.folder)
    assert said.startswith("no permission")
    assert said.endswith("change its owner or mode, or choose another folder.")
    assert everything(made) == {"a": expected(A)}


def test_a_private_folder_is_refused(public: Path) -> None:
    made = FolderStore.create(public / "index", SETTINGS)
    made.folder.chmod(0o700)
    program = AS_NOBODY.replace("store =", "try:\n    store =") + (
        "except PseudoqueryError as error:\n    print(error)\n"
        "try:\n    crash_writer.FolderStore.create(Path(sys.argv[1]), crash_writer.SETTINGS)\n"
        "except PseudoqueryError as error:\n    print(error)\n"
    )
    said = run_python(program, made.folder).splitlines()
    assert len(said) == 2
    for sentence in said:
        assert sentence == (
            f"no permission for {made.folder / 'index.sqlite'}; "
            "change its owner or mode, or choose another folder."
        )
