"""An index folder on a disk that is full, can only be read, or is forbidden."""

from __future__ import annotations

import ast
import os
import random
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from tests.support.crash_writer import SETTINGS, expected, put
from tests.support.disks import mounted_to_read, remount, small_disk
from tests.support.stores import WRITE, A, everything, run_python, start_python

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
                writer.add([document], [DocumentVectors(vectors)])
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
                <= {id_: stored.document for id_, stored in found.items()}.items()
            )
            assert all(len(stored.vectors) == vectors for stored in found.values())
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
    assert found == {id_: expected(stored.document) for id_, stored in found.items()}
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


WATCH = """
import time
from crash_writer import content, expected
outcomes = {}
print("ready", flush=True)
end = time.monotonic() + 60
while outcomes.get("DONE", 0) == 0 and time.monotonic() < end:
    try:
        if reopens:
            store = pseudoquery.storage.store.FolderStore.open(Path(sys.argv[1]))
        with store.snapshot() as snapshot:
            seen = content(snapshot)
            count = snapshot.count()
            words = snapshot.search_fulltext("text", None, 1000)
        sound = seen == {id_: expected(stored.document) for id_, stored in seen.items()}
        outcome = "sound" if sound and len(seen) == count == len(words) else "garbage"
        if "last" in seen:
            outcome = "DONE"
    except PseudoqueryError as error:
        outcome = str(error)
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
print(outcomes)
"""


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("has_log", [False, True])
def test_who_may_not_write_reads_no_garbage_beside_a_writer(
    public: Path, has_log: bool, reopens: bool
) -> None:
    made = FolderStore.create(public / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, *(Document(f"{n}", f"the text of {n}") for n in range(100)))
    if not has_log:
        remove_log(made.folder)
        assert not (made.folder / "index.sqlite-wal").exists()
    program = f"reopens = {reopens}\n{AS_NOBODY}{WATCH}"
    with start_python(program, made.folder) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for number in range(40):
            with made.writer() as writer:
                writer.delete([f"{number}"])
                put(writer, *(Document(f"{n}", f"a text of {n}, {number}") for n in range(50, 60)))
                if number % 5 == 0:
                    writer.compact()
            if not has_log:
                remove_log(made.folder)
        with made.writer() as writer:
            put(writer, Document("last", "the last text"))
        said, _ = reader.communicate(timeout=60)
    outcomes = ast.literal_eval(said)
    assert outcomes.pop("DONE") == 1
    outcomes.pop("sound", None)
    if not has_log:
        changed = "was changed while it was read without locks; run this again."
        outcomes.pop(f"{made.folder / 'index.sqlite'} {changed}", None)
    assert outcomes == {}


LINGER = """
try:
    with store.snapshot() as snapshot:
        print("begun", flush=True)
        sys.stdin.read()
        documents = [stored.document for stored in snapshot.documents()]
    print("sound" if all(document.text == "old" for document in documents) else "garbage")
except PseudoqueryError as error:
    print(error)
"""


@pytest.mark.parametrize("has_log", [False, True])
def test_a_commit_while_someone_who_may_not_write_reads(public: Path, has_log: bool) -> None:
    made = FolderStore.create(public / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, *(Document(f"{n}", "old") for n in range(500)))
    if not has_log:
        remove_log(made.folder)
    with start_python(AS_NOBODY + LINGER, made.folder) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "begun\n"
        with made.writer() as writer:
            put(writer, *(Document(f"{n}", "new") for n in range(500)))
        said, _ = reader.communicate()
    changed = f"{made.folder / 'index.sqlite'} was changed while it was read without locks"
    assert said == ("sound\n" if has_log else f"{changed}; run this again.\n")


BEGIN_SLOWLY = """
from pseudoquery.storage import sqlite_readers
settled = sqlite_readers._settled_version
def settle_slowly(folder):
    version = settled(folder)
    print("begun", flush=True)
    sys.stdin.readline()
    return version
sqlite_readers._settled_version = settle_slowly
try:
    with store.snapshot() as snapshot:
        print(len(list(snapshot.documents())))
except PseudoqueryError as error:
    print(error)
"""


def test_a_commit_into_a_new_log_is_not_taken_for_lost(public: Path) -> None:
    """The file alone is behind what was acknowledged, as long as only the log has the commit."""
    made = FolderStore.create(public / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A)
    remove_log(made.folder)
    with start_python(AS_NOBODY + BEGIN_SLOWLY, made.folder) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "begun\n"
        with made.writer() as writer:
            put(writer, Document("b", "another text"))
            said, _ = reader.communicate("\n")
    changed = f"{made.folder / 'index.sqlite'} was changed while it was read without locks"
    assert said == f"{changed}; run this again.\n"


def remove_log(folder: Path) -> None:
    """Remove the log as programs do that are not ours, unless a reader holds it."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute("SELECT count(*) FROM state").fetchone()


def test_who_may_not_write_reads_what_a_killed_writer_has_committed(public: Path) -> None:
    made = FolderStore.create(public / "index", SETTINGS)
    program = (
        "import os, signal, sys, crash_writer\nfrom pathlib import Path\n"
        "with crash_writer.FolderStore.open(Path(sys.argv[1])).writer() as writer:\n"
        "    crash_writer.put(writer, crash_writer.Document('a', 'text'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with start_python(program, made.folder) as killed:
        killed.wait()
    assert run_python(AS_NOBODY + READ, made.folder) == "['a'] True"


COUNT = """
import sys
from pathlib import Path
from crash_writer import FolderStore, content
store = FolderStore.open(Path(sys.argv[1]))
for _ in sys.stdin:
    with store.snapshot() as snapshot:
        print(len(content(snapshot)), flush=True)
"""


def test_a_disk_mounted_twice_is_read_beside_a_writer(tmp_path: Path) -> None:
    """What is mounted for reading in one folder can be written to in another."""
    disk, mirror = tmp_path / "disk", tmp_path / "mirror"
    with small_disk(disk, "size=10m"), mounted_to_read(disk, mirror):
        made = FolderStore.create(disk / "index", SETTINGS)
        with start_python(COUNT, mirror / "index") as reader:
            for number in range(1, 21):
                with made.writer() as writer:
                    put(writer, Document(f"{number}", f"the text of {number}"))
                    assert count(reader) == number
                assert count(reader) == number
            reader.communicate()


def count(reader: subprocess.Popen[str]) -> int:
    """Let a reader in another process count the documents."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write("\n")
    reader.stdin.flush()
    return int(reader.stdout.readline())


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
