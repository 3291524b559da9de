"""A backup: one committed state of an index folder in one file, taken while a writer may work.

The file is a tar archive with `index.sqlite`, the segments that it names, and at its end
`manifest.json` with the size and the SHA-256 of each. Search structures are not in it: they are
made anew when they are needed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import sqlite3
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from pseudoquery.errors import IndexFolderError
from pseudoquery.files import disk_errors, make_folder, new_folder, sync_folder
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.sqlite_errors import sqlite_errors
from pseudoquery.storage.sqlite_readers import DATABASE
from pseudoquery.storage.store import IDENTITY, FolderStore
from pseudoquery.storage.verify import problems

MANIFEST = "manifest.json"
FORMAT = 1
MEMBER = re.compile(r"index\.sqlite|segments/[0-9]{8,19}\.safetensors")
"""The only names that a backup may hold beside its manifest: nothing is written elsewhere."""
CHUNK = 1 << 20
LARGEST_MANIFEST = 64 << 20


@dataclass(frozen=True, slots=True)
class BackupFile:
    """What a backup says of one of its files."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    documents: int
    bytes: int
    """How many bytes its files have together."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The end of a backup."""

    format: int
    documents: int
    files: dict[str, BackupFile]


def write_backup(store: FolderStore, file: Path) -> Backup:
    """Write the newest committed state of an index into one new file.

    A writer may go on meanwhile. A damaged index is refused, as far as reading it shows damage.
    """
    if os.path.lexists(file):
        raise IndexFolderError(f"{file} is there already; choose another name.")
    with disk_errors(file.parent), _state_of(store) as (snapshot, segments):
        if found := snapshot.problems():
            raise _damaged_source(store, found[0])
        make_folder(file.parent)
        partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}.partial")
        try:
            with partial.open("xb") as target:
                manifest = _write_files(store, snapshot, segments, target)
                target.flush()
                os.fsync(target.fileno())
            partial.rename(file)
        except BaseException:
            partial.unlink(missing_ok=True)  # a full disk needs the room
            raise
        sync_folder(file.parent)
    return Backup(manifest.documents, sum(each.bytes for each in manifest.files.values()))


def restore_backup(file: Path, folder: Path) -> Backup:
    """Make a new index folder of a backup, after each byte of it was compared and verified.

    The index gets an identity of its own: a process that has another state of it open says so, and
    does not mix the two.
    """
    with new_folder(folder) as fresh:
        manifest = _extract(file, fresh)
        with sqlite_errors(fresh):
            _renew_identity(fresh / DATABASE)
        if found := problems(FolderStore.open(fresh)):
            raise _broken(file, found[0])
    return Backup(manifest.documents, sum(each.bytes for each in manifest.files.values()))


@contextmanager
def _state_of(store: FolderStore) -> Iterator[tuple[FolderSnapshot, dict[str, BufferedReader]]]:
    """Open all files of one state before a merge can remove any of them."""
    failed_generation = None
    while True:
        with ExitStack() as stack:
            snapshot = stack.enter_context(store.snapshot())
            generation = snapshot.unchecked_view.generation
            numbers = [facts.number for facts in snapshot.segment_facts()]
            paths = [segment_path(store.folder, number) for number in numbers]
            try:
                segments = {
                    f"segments/{path.name}": stack.enter_context(path.open("rb")) for path in paths
                }
            except FileNotFoundError as error:
                # A merge may have replaced it: look again, as long as there is something new.
                if generation == failed_generation:
                    raise _damaged_source(store, f"{error.filename} is missing") from error
                failed_generation = generation
                continue
            yield snapshot, segments
            return


def _write_files(
    store: FolderStore,
    snapshot: FolderSnapshot,
    segments: dict[str, BufferedReader],
    target: IO[bytes],
) -> Manifest:
    """Write the archive; a segment must be what was written into the index."""
    files: dict[str, BackupFile] = {}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        with tempfile.TemporaryDirectory(dir=Path(target.name).parent, prefix=".") as temporary:
            database = Path(temporary) / DATABASE
            snapshot.copy_database(database)
            with database.open("rb") as source:
                files[DATABASE] = _add(archive, DATABASE, source)
        for facts, (name, source) in zip(snapshot.segment_facts(), segments.items(), strict=True):
            files[name] = _add(archive, name, source)
            if files[name].sha256 != facts.sha256:
                raise _damaged_source(store, f"segment {facts.number} is not what was written")
        manifest = Manifest(FORMAT, snapshot.count(), files)
        content = json.dumps(asdict(manifest)).encode()
        _add(archive, MANIFEST, io.BytesIO(content))
    return manifest


def _add(archive: tarfile.TarFile, name: str, source: IO[bytes]) -> BackupFile:
    source.seek(0, io.SEEK_END)
    member = tarfile.TarInfo(name)
    member.size = source.tell()
    source.seek(0)
    hashing = _HashingReader(source)
    archive.addfile(member, hashing)
    return BackupFile(member.size, hashing.hash.hexdigest())


class _HashingReader:
    """A file that is hashed as it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._source.read(size)
        self.hash.update(content)
        return content


def _extract(file: Path, folder: Path) -> Manifest:
    """Write the files of a backup into a folder, and compare them with the manifest."""
    (folder / "segments").mkdir()
    written: dict[str, BackupFile] = {}
    manifest = None
    try:
        with tarfile.open(file, mode="r:") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                if source is None or manifest is not None or member.name in written:
                    raise _broken(file, f"it should not hold {member.name!r}")
                if member.name == MANIFEST:
                    manifest = _read_manifest(source.read(LARGEST_MANIFEST))
                elif MEMBER.fullmatch(member.name):
                    written[member.name] = _write_member(source, folder / member.name)
                else:
                    raise _broken(file, f"it should not hold {member.name!r}")
    except (tarfile.TarError, EOFError, ValueError) as error:
        # tarfile raises ValueError for headers that are no numbers or no text.
        raise _broken(file, f"it can't be read ({error})") from error
    if manifest is None:
        raise _broken(file, "its end is missing")
    if DATABASE not in manifest.files:
        raise _broken(file, f"it holds no {DATABASE}")
    if manifest.files != written:
        wrong = sorted({name for name, _ in manifest.files.items() ^ written.items()})
        raise _broken(file, f"{wrong[0]} is not what was written")
    return manifest


def _write_member(source: IO[bytes], path: Path) -> BackupFile:
    hashing = hashlib.sha256()
    size = 0
    with path.open("xb") as target:
        while content := source.read(CHUNK):
            hashing.update(content)
            size += target.write(content)
    return BackupFile(size, hashing.hexdigest())


def _read_manifest(content: bytes) -> Manifest:
    """Read the manifest, or raise ValueError."""
    try:
        fields = json.loads(content)
        files = {name: BackupFile(**facts) for name, facts in fields.pop("files").items()}
        manifest = Manifest(**fields, files=files)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("its manifest is damaged") from error
    if manifest.format != FORMAT:
        raise ValueError(f"it has the format {manifest.format!r}, and this version reads {FORMAT}")
    return manifest


def _renew_identity(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        # The copy is no index that anybody has open; it gets back the log that readers rely on.
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(
            "UPDATE settings SET value = ? WHERE name = ?", [uuid.uuid4().hex, IDENTITY]
        )


def _damaged_source(store: FolderStore, problem: str) -> IndexFolderError:
    return IndexFolderError(
        f"{store.folder} is damaged, so no backup was made: {problem}; "
        f"see `pseudoquery verify {store.folder}`."
    )


def _broken(file: Path, problem: str) -> IndexFolderError:
    return IndexFolderError(
        f"{file} is no sound backup: {problem}; use another one. Nothing was restored."
    )
