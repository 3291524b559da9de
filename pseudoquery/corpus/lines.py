"""Text files, gzipped or not, local or remote: open them, decode them, number their lines."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from pseudoquery.corpus.remote import is_remote, open_remote
from pseudoquery.errors import CorpusError

NumberedLines: TypeAlias = Iterator[tuple[int, str]]
"""Each line with its number, which starts at 1."""
LONGEST = 256 << 20
"""Bytes of a line, at most."""
_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a text file with its origin, such as "docs.tsv line 3"."""
    name = show_name(path)
    for number, raw in read_numbered_lines(path, name):
        origin = f"{name} line {number}"
        yield origin, check_utf8(strip_newline(raw), origin)


def find_file(folder: Path, name: str) -> Path | None:
    """Find a file in a folder by its name; a gzipped file, NAME.gz, also counts."""
    candidates = (folder / name, folder / f"{name}.gz")
    try:
        return next((path for path in candidates if path.is_file()), None)
    except OSError as error:
        raise unreadable_error(show_name(folder), error) from error


def show_name(path: Path | str) -> str:
    """Name a file in a message: as the user named it, in characters that can be printed."""
    return "standard input" if str(path) == "-" else escape_name(str(path))


def escape_name(name: str) -> str:
    """Escape the bytes of a file name that are not Unicode: they can't be printed."""
    return name.encode("utf-8", "backslashreplace").decode()


def open_bytes(source: Path | str) -> AbstractContextManager[BinaryIO]:
    """Open a file, gzipped or not, or standard input; standard input stays open afterwards."""
    if is_remote(source):
        return open_remote(str(source))
    path = Path(source)
    if str(path) == "-":
        if sys.stdin is None:
            raise ValueError("it is closed")
        return nullcontext(cast(BinaryIO, sys.stdin.buffer))
    if path.suffix.lower() == ".gz":
        return cast(AbstractContextManager[BinaryIO], gzip.open(path, "rb"))
    return path.open("rb")


def read_numbered_lines(path: Path | str, name: str) -> NumberedLines:
    """Yield the lines of a file, with their newlines and their numbers.

    Bytes that are not UTF-8 are escaped. `check_utf8` finds the escapes later: one bad byte then
    costs one record, not the whole file.
    """
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST + 1), b""), 1):
                if len(line) > LONGEST:
                    # A small gzip file can hold a line that fills the memory.
                    raise CorpusError(
                        f"{name} line {number}: the line is longer than {LONGEST >> 20} MiB; "
                        "divide it into several documents."
                    )
                content = line.removeprefix(_BOM) if number == 1 else line
                yield number, content.decode("utf-8", "surrogateescape")
    except (EOFError, OSError, ValueError, zlib.error) as error:
        origin = f"{name} line {number + 1}" if number else name
        raise unreadable_error(origin, error) from error


def unreadable_error(origin: str, error: Exception) -> CorpusError:
    """Make an error that says in one sentence why a file can't be read."""
    if isinstance(error, OSError) and error.strerror:
        return CorpusError(f"{origin}: can't be read ({error.strerror}).")
    if isinstance(error, ValueError):
        return CorpusError(f"{origin}: can't be read ({error}).")
    return CorpusError(f"{origin}: the gzip file is damaged or cut short ({error}).")


def check_utf8(text: str, origin: str) -> str:
    """Return a text of `read_numbered_lines`, or raise if it was not valid UTF-8 in the file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00
        raise CorpusError(
            f"{origin}: not valid UTF-8 (byte 0x{byte:02x}); the file must be encoded in UTF-8."
        ) from error
    return text


def strip_newline(line: str) -> str:
    """Drop the newline at the end of a line, of Unix or of Windows, and nothing else."""
    return line.removesuffix("\n").removesuffix("\r")
