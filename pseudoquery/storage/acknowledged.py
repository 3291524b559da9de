"""Which change was acknowledged last, known outside of SQLite's log.

A flipped bit in the log makes SQLite drop the rest of it, and say nothing. So the generation of
each commit is also written to a small file, and synced, before the commit is acknowledged. If the
database is behind that file, then acknowledged changes are lost, and somebody must decide.

The file has two slots that are written in turn, so that a torn write leaves the one before.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from pseudoquery.files import write_atomically

FILE = "acknowledged"
SLOT = 4096
"""Bytes of a slot: what disks write at once."""


class Acknowledgements:
    """The file as its one writer holds it open: it stays with its index, wherever that is moved."""

    def __init__(self, folder: Path, identity: str, generation: int) -> None:
        self._identity = identity
        acknowledged = acknowledged_generation(folder, identity)
        if acknowledged is None:
            write_atomically(folder / FILE, 2 * _slot(identity, generation))
        self._descriptor = os.open(folder / FILE, os.O_WRONLY)
        if acknowledged not in (None, generation):
            # A writer died after its last commit, or a slot is damaged.
            self.add(generation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def add(self, generation: int) -> None:
        """Bring the generation of a commit to the disk."""
        slot = _slot(self._identity, generation)
        os.pwrite(self._descriptor, slot, SLOT * (generation % 2))
        os.fdatasync(self._descriptor)


def acknowledged_generation(folder: Path, identity: str) -> int | None:
    """Read the generation that was acknowledged last; None if nothing tells it."""
    try:
        content = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None  # An older version has written the index, or nobody has.
    slots = (content[:SLOT], content[SLOT:])
    known = [generation for slot in slots if (generation := _read_slot(slot, identity)) is not None]
    return max(known, default=None)


def _read_slot(slot: bytes, identity: str) -> int | None:
    """Read a slot of this index, unless it is damaged, torn, or of another index."""
    _, _, rest = slot.partition(b" ")
    digits = rest.partition(b" ")[0]
    if not digits.isdigit() or slot != _slot(identity, int(digits)):
        return None
    return int(digits)


def _slot(identity: str, generation: int) -> bytes:
    content = f"{identity} {generation}"
    checksum = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    return f"{content} {checksum}\n".encode().ljust(SLOT, b"\n")
