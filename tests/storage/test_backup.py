"""A backup is one committed state, whoever writes meanwhile; damage to it is found."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.backup import Backup, restore_backup, write_backup
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from tests.support.crash_writer import SETTINGS, expected, put, random_document
from tests.support.stores import A, B, everything, start_python


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    with made.writer() as writer:
        put(writer, A, B)
        put(writer, *(Document(f"{number}", f"the text of {number}") for number in range(20)))
        writer.delete(["3"])
    return made


def test_what_is_restored_is_what_was_saved(store: FolderStore, tmp_path: Path) -> None:
    saved = write_backup(store, tmp_path / "new" / "backup")
    assert saved.documents == 21
    assert restore_backup(tmp_path / "new" / "backup", tmp_path / "again") == saved
    again = FolderStore.open(tmp_path / "again")
    assert everything(again) == everything(store)
    assert again.settings == store.settings
    assert problems(again) == []
    with again.writer() as writer:
        put(writer, Document("3", "another text"))
    assert set(everything(again)) - set(everything(store)) == {"3"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["backup"]


def test_an_empty_index(tmp_path: Path) -> None:
    empty = FolderStore.create(tmp_path / "index", SETTINGS)
    assert write_backup(empty, tmp_path / "backup").documents == 0
    restore_backup(tmp_path / "backup", tmp_path / "again")
    assert everything(FolderStore.open(tmp_path / "again")) == {}


def test_one_state_is_saved_while_a_writer_works(store: FolderStore, tmp_path: Path) -> None:
    """A batch always replaces all of its documents: no backup may hold two of them."""
    program = (
        "import itertools, sys, crash_writer\nfrom pathlib import Path\n"
        "store = crash_writer.FolderStore.open(Path(sys.argv[1]))\n"
        "with store.writer() as writer:\n"
        "    for batch in itertools.count():\n"
        "        documents = [crash_writer.Document(f'{n}', f'{batch}') for n in range(20)]\n"
        "        crash_writer.put(writer, *documents)\n"
        "        if batch % 5 == 0:\n"
        "            writer.compact()\n"
        "        print(batch, flush=True)\n"
    )
    states = set()
    with start_python(program, store.folder) as writer:
        assert writer.stdout is not None
        for number in range(8):
            for _ in range(3):
                writer.stdout.readline()
            write_backup(store, tmp_path / f"backup {number}")
        writer.kill()
        writer.communicate()
    for number in range(8):
        restore_backup(tmp_path / f"backup {number}", tmp_path / f"again {number}")
        again = everything(FolderStore.open(tmp_path / f"again {number}"))
        assert again == {id_: expected(stored.document) for id_, stored in again.items()}
        texts = {again[f"{n}"].document.text for n in range(20)}
        assert len(texts) == 1
        states |= texts
    assert len(states) > 1


def test_any_flipped_byte_is_found(store: FolderStore, tmp_path: Path) -> None:
    """What a flip leaves readable is equal to the last byte: padding and times are not used."""
    write_backup(store, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    choose = random.Random(1)
    refused = 0
    for number in range(200):
        damaged = bytearray(content)
        damaged[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            restore_backup(tmp_path / "damaged", tmp_path / f"{number}")
        except IndexFolderError as error:
            refused += 1
            assert "is no sound backup: " in str(error)  # noqa: PT017
            assert not (tmp_path / f"{number}").exists()
        else:
            assert everything(FolderStore.open(tmp_path / f"{number}")) == everything(store)
    assert refused > 150


def test_a_backup_that_was_cut_is_refused(store: FolderStore, tmp_path: Path) -> None:
    write_backup(store, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    with tarfile.open(tmp_path / "backup") as archive:
        end = archive.getmember("manifest.json").offset_data
    for size in [*range(0, end, 509), end, end + 1]:
        (tmp_path / "cut").write_bytes(content[:size])
        with pytest.raises(IndexFolderError, match=r"is no sound backup: .*Nothing was restored"):
            restore_backup(tmp_path / "cut", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not list(tmp_path.glob(".*"))


def link(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


def plain(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 4
    return member


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (plain, "../stranger"),
        (plain, "/tmp/stranger"),
        (plain, "lock"),
        (plain, "segments/../stranger"),
        (plain, "index.sqlite\n"),
        (link, "segments/00000001.safetensors"),
        (link, "index.sqlite"),
    ],
)
def test_a_hostile_backup_writes_nothing_elsewhere(
    tmp_path: Path, make: Callable[[str], tarfile.TarInfo], name: str
) -> None:
    with tarfile.open(tmp_path / "backup", "w") as archive:
        archive.addfile(make(name), io.BytesIO(b"evil"))
    with pytest.raises(IndexFolderError, match="it should not hold"):
        restore_backup(tmp_path / "backup", tmp_path / "again")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"\xff",
        b'{"format": 2, "documents": 1, "files": {}}',
        b'{"format": 1, "files": {}}',
        b'{"format": 1, "documents": 1, "files": []}',
        b'{"format": 1, "documents": 1, "files": {"a": 1}}',
        b'{"format": 1, "documents": 1, "files": {}}',
    ],
)
def test_a_manifest_that_is_none(tmp_path: Path, manifest: bytes) -> None:
    with tarfile.open(tmp_path / "backup", "w") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        archive.addfile(member, io.BytesIO(manifest))
    with pytest.raises(IndexFolderError, match="is no sound backup: "):
        restore_backup(tmp_path / "backup", tmp_path / "again")


def test_a_damaged_index_is_not_saved(store: FolderStore, tmp_path: Path) -> None:
    path = segment_path(store.folder, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    with pytest.raises(IndexFolderError, match="no backup was made: segment 1 is not what was"):
        write_backup(store, tmp_path / "backup")
    path.unlink()
    with pytest.raises(IndexFolderError, match="it is missing"):
        write_backup(FolderStore.open(store.folder), tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_segment_that_is_gone_though_it_is_mapped(store: FolderStore, tmp_path: Path) -> None:
    everything(store)
    segment_path(store.folder, 1).unlink()
    with pytest.raises(IndexFolderError, match=r"no backup was made: .*00000001.* is missing"):
        write_backup(store, tmp_path / "backup")


def test_nothing_is_written_over(store: FolderStore, tmp_path: Path) -> None:
    write_backup(store, tmp_path / "backup")
    with pytest.raises(IndexFolderError, match="backup is there already"):
        write_backup(store, tmp_path / "backup")
    with pytest.raises(IndexFolderError, match="index is there already"):
        restore_backup(tmp_path / "backup", store.folder)


def test_who_has_the_index_open_is_told_of_a_restored_one(
    store: FolderStore, tmp_path: Path
) -> None:
    everything(store)
    write_backup(store, tmp_path / "backup")
    store.folder.rename(tmp_path / "old")
    restore_backup(tmp_path / "backup", store.folder)
    with pytest.raises(IndexFolderError, match="holds another index than when it was opened"):
        everything(store)


@pytest.mark.parametrize("seed", range(5))
def test_any_index_is_restored_as_it_was(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    made = FolderStore.create(tmp_path / "index", SETTINGS)
    for number in range(5):
        with made.writer() as writer:
            drawn = [random_document(choose) for _ in range(8)]
            put(writer, *{document.id: document for document in drawn}.values())
            writer.delete([drawn[0].id])
        saved = write_backup(made, tmp_path / f"{number}")
        restored: Backup = restore_backup(tmp_path / f"{number}", tmp_path / f"again {number}")
        assert restored == saved
        assert everything(FolderStore.open(tmp_path / f"again {number}")) == everything(made)
