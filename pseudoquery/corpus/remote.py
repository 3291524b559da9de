"""Remote files: s3://, gs://, https:// and every other address that fsspec opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from pseudoquery.errors import CorpusError


def is_remote(source: str | Path) -> bool:
    """Say whether a source is an address, and not the name of a file."""
    return isinstance(source, str) and "://" in source


@contextmanager
def open_remote(address: str) -> Iterator[BinaryIO]:
    """Open a remote file as a stream of bytes; a .gz file is unpacked."""
    with (
        library_errors(address),
        _fsspec().open(address, "rb", compression="infer") as stream,
        BufferedReader(stream) as buffered,  # which reads a line up to a limit
    ):
        yield buffered


def list_remote_files(address: str, *suffixes: str) -> list[str]:
    """List the files of a remote folder whose names end so, in order; a file is its own list."""
    with library_errors(address):
        system, path = _fsspec().url_to_fs(address)
        if not system.isdir(path):
            return [address]
        names = system.ls(path, detail=False)
        matching = [name for name in names if name.lower().endswith(suffixes)]
        if not matching:
            raise CorpusError(f"{address}: the folder has no {' or '.join(suffixes)} files.")
        return [system.unstrip_protocol(name) for name in sorted(matching)]


def _fsspec() -> Any:
    return import_module("fsspec")  # it comes with torch


@contextmanager
def library_errors(name: str, kind: str = "") -> Iterator[None]:
    """Turn any error of a library into one sentence; the libraries' errors have no common base."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise CorpusError(
            f"{name}: can't be read{kind} ({type(error).__name__}: {reason})."
        ) from error
