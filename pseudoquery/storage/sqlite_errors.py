"""Errors of the disk and of SQLite, each as one sentence that a user can act on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pseudoquery.errors import IndexFolderError, QueryError
from pseudoquery.files import disk_errors, full_disk_sentence


@contextmanager
def sqlite_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk or of SQLite into one sentence that a user can act on."""
    try:
        with disk_errors(folder):
            yield
    except sqlite3.DatabaseError as error:
        raise IndexFolderError(_database_sentence(folder, error)) from error
    except UnicodeDecodeError as error:
        # SQLite quotes what it can't understand in its message.
        raise IndexFolderError(no_index_sentence(folder)) from error
    except UnicodeEncodeError as error:
        # Documents are checked before they are stored, so a user has asked for this text.
        raise QueryError(f"{error.object!r} is not valid Unicode (a lone surrogate).") from error


def _database_sentence(folder: Path, error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return full_disk_sentence(folder)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return (
            f"no permission to write in {folder}; "
            "change its owner or mode, or choose another folder."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"{folder / 'index.sqlite'} is damaged ({error}); restore it from a backup, "
            "or build the index again."
        )
    if "no such table" in str(error):
        return no_index_sentence(folder)
    return f"{folder / 'index.sqlite'} can't be used ({error})."


def no_index_sentence(folder: Path) -> str:
    """Say that a file is not an index, and what to do."""
    return (
        f"{folder / 'index.sqlite'} is not an index of pseudoquery, or is damaged; "
        "restore it from a backup, or build the index again."
    )
