"""Acknowledged changes that the database no longer has: counted, reported, and never cleaned away.

SQLite drops its log from the first damaged byte on. What it drops, and the segments that only the
dropped changes name, may be all that is left of documents: whoever decides to go on without them
finds both in the folder `lost`.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection
from pathlib import Path

from pseudoquery.files import make_folder, sync_files
from pseudoquery.storage.acknowledged import acknowledged_generation
from pseudoquery.storage.snapshot import read_state
from pseudoquery.storage.sqlite_readers import LOG

LOST = "lost"


def count_lost(folder: Path, identity: str, connection: sqlite3.Connection) -> int:
    """Count the acknowledged changes that are missing."""
    # In this order: a writer may commit in between, and then the database is ahead.
    acknowledged = acknowledged_generation(folder, identity)
    generation, _ = read_state(connection)
    return 0 if acknowledged is None else max(0, acknowledged - generation)


def lost_sentence(folder: Path, lost: int) -> str:
    """Say that acknowledged changes are missing, and what to do."""
    changes = "change is" if lost == 1 else f"{lost} changes are"
    return (
        f"the last {changes} missing from {folder / 'index.sqlite'}, though acknowledged: its log "
        "was damaged or removed; restore the index from a backup, or go on without them with "
        f"`pseudoquery verify {folder} --repair`, which sets aside what is left of them in "
        f"{folder / LOST}."
    )


def set_aside(folder: Path, generation: int, named: Collection[Path]) -> None:
    """Copy the log and all segments that no row names, so that nothing can remove them."""
    target = folder / LOST / f"{generation:08d}"
    make_folder(target)
    orphans = [path for path in (folder / "segments").iterdir() if path not in named]
    for path in (folder / LOG, *orphans):
        # A copy that an interrupted run has made is of the log before anyone shortened it.
        if path.exists() and not (target / path.name).exists():
            shutil.copy2(path, target)
    sync_files(target)
