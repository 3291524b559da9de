"""Small disks in memory, for the tests of full and read-only disks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a file system in memory, where that is permitted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def mounted_to_read(folder: Path, mirror: Path) -> Iterator[None]:
    """Mount a folder a second time, only to be read there."""
    mirror.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(mirror)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(mirror)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(mirror)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
