"""Files that are elsewhere: s3://, gs://, https:// and whatever else fsspec opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from pseudoquery.errors import CorpusError


def is_remote(source: str | Path) -> bool:
    """Tell an address from a file's name."""
    return isinstance(source, str) and "://" in source


@contextmanager
def open_remote(address: str) -> Iterator[BinaryIO]:
    """Read a file as a stream of bytes, and one that is named .gz as what it holds."""
    with (
        library_errors(address),
        _fsspec().open(address, "rb", compression="infer") as stream,
    ):
        yield stream


def list_remote_files(address: str, *suffixes: str) -> list[str]:
    """List the files of such names in a folder, in order; a file is alone."""
    with library_errors(address):
        system, path = _fsspec().url_to_fs(address)
        if not system.isdir(path):
            return [address]
        names = system.ls(path, detail=False)
        found = [name for name in names if name.lower().endswith(suffixes)]
        if not found:
            raise CorpusError(f"{address}: the folder has no {' or '.join(suffixes)} files.")
        return [system.unstrip_protocol(name) for name in sorted(found)]


def _fsspec() -> Any:
    return import_module("fsspec")  # it comes with torch


@contextmanager
def library_errors(name: str, kind: str = "") -> Iterator[None]:
    """Put into one sentence whatever the libraries raise, which is of no common kind."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise CorpusError(
            f"{name}: can't be read{kind} ({type(error).__name__}: {said})."
        ) from error
