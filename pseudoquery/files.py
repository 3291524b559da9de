"""Files and folders that are either complete or absent: written beside their name, then renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pseudoquery.errors import IndexFolderError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file beside its target, sync it, and rename it."""
    if not path.parent.is_dir():
        path.parent.mkdir(exist_ok=True)
        sync_folder(path.parent.parent)
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
        move_atomically(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def move_atomically(temporary: Path, path: Path) -> None:
    """Sync a file that was written beside its target, and rename it."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, so that they survive a power cut."""
    missing = [path for path in folder.parents if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    # A folder that is there already may be what an interrupted run has made and not synced.
    for path in (folder, *missing):
        with suppress(PermissionError):  # Whoever may not read it has made nothing in it.
            sync_folder(path.parent)


def replace_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder beside the target, and rename it when it is on disk."""
    fresh, stale = target.with_name(f"{target.name}.tmp"), target.with_name(f"{target.name}.old")
    for folder in (fresh, stale):
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(fresh)
    try:
        write(fresh)
        sync_files(fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)  # a full disk needs the room
        raise
    if target.exists():
        target.rename(stale)
    fresh.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(stale, ignore_errors=True)


def sync_files(folder: Path) -> None:
    """Bring all files below a folder to the disk."""
    for path in files_below(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for parent in (folder, *filter(Path.is_dir, folder.rglob("*"))):
        sync_folder(parent)


def files_below(folder: Path) -> list[Path]:
    """List all files below a folder, in order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a folder to write in, which gets the target's name when all of it is on disk."""
    with disk_errors(target):
        if os.path.lexists(target):
            raise IndexFolderError(f"{target} is there already; choose another folder.")
        fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        make_folder(fresh)
        try:
            yield fresh
            sync_files(fresh)
            fresh.rename(target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)  # a full disk needs the room
            raise
        sync_folder(target.parent)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one sentence that a user can act on."""
    try:
        yield
    except PermissionError as error:
        raise IndexFolderError(
            f"no permission for {error.filename or folder}; "
            "change its owner or mode, or choose another folder."
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise IndexFolderError(full_disk_sentence(folder)) from error
        if error.errno == errno.EROFS:
            raise IndexFolderError(f"{folder} is on a disk that can only be read.") from error
        raise IndexFolderError(f"{folder} can't be used: {error}.") from error


def full_disk_sentence(folder: Path) -> str:
    """Say that a disk is full, and that what was acknowledged is safe."""
    return (
        f"no space is left on the disk of {folder}; everything acknowledged so far is safe: "
        "free some space, then run this again."
    )


def sha256_of(path: Path) -> str:
    """Hash a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
