"""Reading documents, queries and judgements from files, one record at a time.

Every format is a generator of parses: calls without arguments that each make one document or raise
one CorpusError. A bad record thus never ends its generator, and `read_documents` alone decides
whether it is fatal. Faults of a whole file (missing, cut short, no header) are always raised.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias, cast

from pseudoquery.corpus.huggingface import (
    PREFIX,
    Row,
    Rows,
    hub_rows,
    is_saved,
    parquet_rows,
    saved_rows,
)
from pseudoquery.corpus.remote import files_at, is_remote, opened
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

Parse: TypeAlias = Callable[[], Document]
Lines: TypeAlias = Iterator[tuple[int, str]]
OnBad: TypeAlias = Callable[[CorpusError], None]
"""What to do with a record that can't be used: raise its error, or count it and go on."""

_BOM = b"\xef\xbb\xbf"
_EXPECTED = 'each line must be one JSON object with "id" and "text"'
_OWN_FIELDS = frozenset({"_id", "id", "text", "title"})
_TSV_LAYOUTS = {2: ("id", "text"), 3: ("id", "title", "text"), 4: ("id", "url", "title", "text")}
_QRELS_HEADER = ["query-id", "corpus-id", "score"]
_TEXT_SUFFIXES = (".txt", ".md")
_TABLE_SUFFIX = ".parquet"
_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_LARGEST_CELL = 2**26
"""Characters in one CSV cell: room for any document, yet a stray quote can't eat all memory."""
_DEEPEST = 100
"""Levels of nesting in metadata; well within what any JSON writer can store again."""


def read_documents(
    source: str | Path, *, on_bad: OnBad | None = None, columns: Mapping[str, str] | None = None
) -> Iterator[Document]:
    """Yield the documents of a file, a folder, standard input ("-") or a Hugging Face dataset.

    JSON lines and Parquet may also be at an address, such as s3://BUCKET/FOLDER. A malformed record
    is raised, or given to `on_bad` and skipped. `columns` says which columns of a dataset are the
    id, the text and the title. Nothing but one record is held in memory.
    """
    for parse in _parses(source, columns or {}):
        try:
            document = parse()
            check_document(document)
        except CorpusError as error:
            if on_bad is None:
                raise
            on_bad(error)
        else:
            yield document


def shards(source: str | Path) -> list[str]:
    """List the files of a corpus that can be read each on its own; most sources are one."""
    if is_remote(source):
        return files_at(str(source), *_LINES_SUFFIXES, _TABLE_SUFFIX)
    path = Path(source)
    if str(source).startswith(PREFIX) or str(path) == "-" or not _is_folder(path):
        return [str(source)]
    others = (*_TEXT_SUFFIXES, _TABLE_SUFFIX)
    if member(path, "corpus.jsonl") or is_saved(path) or any(_files(path, *others)):
        return [str(source)]
    # Not those of folders below: a document's place is told by the name of its file.
    found = [name for name in _files(path, *_LINES_SUFFIXES) if "/" not in name]
    return [str(path / name) for name in sorted(found)] or [str(source)]


def read_queries(folder_or_file: str | Path) -> Iterator[Query]:
    """Yield the queries of a BEIR folder, or of a JSONL file such as its queries.jsonl.

    Either may be in Parquet files instead.
    """
    path = Path(folder_or_file)
    if str(path) != "-" and _is_folder(path):
        names = ("queries.jsonl", f"queries{_TABLE_SUFFIX}")
        path = next(filter(None, (member(path, name) for name in names)), path / names[0])
    for parse in _parses(path, {}) if path.suffix == _TABLE_SUFFIX else _json_parses(path):
        document = parse()
        check_document(document)
        yield Query(document.id, document.text, _answers(document))


def read_qrels(path: str | Path) -> Iterator[Qrel]:
    """Yield the judgements of a BEIR file, known by its header, or of a TREC file, without one."""
    beir = False
    for number, (place, line) in enumerate(read_lines(Path(path))):
        if number == 0 and line.split() == _QRELS_HEADER:
            beir = True
        elif line.strip():
            yield _qrel(line, beir, place)


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a text file, gzipped or not, without their ends, each with its place."""
    name = _name(path)
    for number, raw in _lines(path, name):
        place = f"{name} line {number}"
        yield place, _utf8(_without_newline(raw), place)


def read_rows(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the rows of a tab-separated file with quotes as in a CSV file, each with its place."""
    name = _name(path)
    for place, row in _csv_rows(_lines(path, name), name, "\t"):
        yield place, _cells(row, place)


def member(folder: Path, name: str) -> Path | None:
    """Find a file in a folder, plain or gzipped."""
    candidates = (folder / name, folder / f"{name}.gz")
    try:
        return next((path for path in candidates if path.is_file()), None)
    except OSError as error:
        raise _unreadable(_name(folder), error) from error


def parse_document(line: bytes, place: str) -> Document:
    """Make a document of one line of JSON; an error names the place."""
    document = _json_document(line.decode("utf-8", "surrogateescape"), place)
    check_document(document)
    return document


def check_document(document: Document) -> None:
    """Raise CorpusError unless the document can be stored and read back unchanged."""
    problem = next(_problems(document), None)
    if problem is not None:
        named = f"document {_shown(document.id)}" if isinstance(document.id, str) else "document"
        raise CorpusError(f"{document.place or named}: {problem}.")


def _problems(document: Document) -> Iterator[str]:
    """Say all that keeps a document from being stored, lazily, as the ends of sentences."""
    fields = {"id": document.id, "title": document.title, "text": document.text}
    for name, value in fields.items():
        if problem := _string_problem(value):
            yield f"the {name} {problem}"
    if not document.id:
        yield "the id is empty; it must be a non-empty string"
    if not isinstance(document.metadata, Mapping):
        yield f"the metadata is {_kind(document.metadata)}; it must be an object"
        return
    for key, value in document.metadata.items():
        if problem := _string_problem(key):
            yield f"a key of the metadata {problem}"
        if problem := _json_problem(value, depth=1):
            yield f"the metadata under {_shown(key)} {problem}"


def _string_problem(value: object) -> str:
    """Say what is wrong with a value that must be a string of valid Unicode; "" if nothing is."""
    if not isinstance(value, str):
        return f"is {_kind(value)}; it must be a string"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return (
            f"has the lone surrogate \\u{code:04x} at character {error.start + 1}; "
            "it must be valid Unicode"
        )
    return ""


def _json_problem(value: object, depth: int) -> str:
    """Say what is wrong with a value that must be plain JSON; "" if nothing is."""
    if isinstance(value, str):
        return _string_problem(value)
    if isinstance(value, list | dict):
        return _nested_problem(value, depth)
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"has {value}; a number must be finite"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return "" if fits else "has an integer that does not fit in 64 bits; write it as a string"
    return "" if value is None else f"is or has a value {_kind(value)}; it must be plain JSON"


def _nested_problem(value: list[Any] | dict[Any, Any], depth: int) -> str:
    """Say what is wrong inside a list or an object; the limit also ends one that holds itself."""
    if depth >= _DEEPEST:
        return f"is nested more than {_DEEPEST} levels deep; it must be flatter"
    if isinstance(value, dict):
        for key in value:
            if problem := _string_problem(key):
                return f"has a key that {problem}"
    items = value.values() if isinstance(value, dict) else value
    return next(filter(None, (_json_problem(item, depth + 1) for item in items)), "")


def _kind(value: object) -> str:
    """Name the type of a value in the words of a JSON file where it has any."""
    kinds = {
        bool: "true or false",
        dict: "an object",
        float: "a number",
        int: "a number",
        list: "an array",
        str: "a string",
        type(None): "null",
    }
    return kinds.get(type(value), f"of type {type(value).__name__}")


def _shown(value: object) -> str:
    """Quote a value for a message, short and without characters that a terminal can't print."""
    if not isinstance(value, str):
        return _kind(value)
    return repr(value) if len(value) <= 80 else f"{value[:77]!r}..."


def _name(path: Path | str) -> str:
    """Name a file as the user did, in characters that can be printed."""
    return "standard input" if str(path) == "-" else _printable(str(path))


def _printable(name: str) -> str:
    """Escape what is not Unicode in a file name, so that a message about it can be printed."""
    return name.encode("utf-8", "backslashreplace").decode()


def _open(source: Path | str) -> AbstractContextManager[BinaryIO]:
    """Open a file, gzipped or not, or standard input, which stays open afterwards."""
    if is_remote(source):
        return opened(str(source))
    path = Path(source)
    if str(path) == "-":
        if sys.stdin is None:
            raise ValueError("it is closed")
        return nullcontext(cast(BinaryIO, sys.stdin.buffer))
    if path.suffix.lower() == ".gz":
        return cast(AbstractContextManager[BinaryIO], gzip.open(path, "rb"))
    return path.open("rb")


def _lines(path: Path | str, name: str) -> Lines:
    """Yield the numbered lines of a file, newlines kept, and bytes that are not UTF-8 escaped.

    `_utf8` finds the escapes, so that one bad byte costs one record and not the file.
    """
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):
                whole = line.removeprefix(_BOM) if number == 1 else line
                yield number, whole.decode("utf-8", "surrogateescape")
    except (EOFError, OSError, ValueError, zlib.error) as error:
        place = f"{name} line {number + 1}" if number else name
        raise _unreadable(place, error) from error


def _unreadable(place: str, error: Exception) -> CorpusError:
    """Put into one sentence why the system or gzip can't read a file."""
    if isinstance(error, OSError) and error.strerror:
        return CorpusError(f"{place}: can't be read ({error.strerror}).")
    if isinstance(error, ValueError):
        return CorpusError(f"{place}: can't be read ({error}).")
    return CorpusError(f"{place}: the gzip file is damaged or cut short ({error}).")


def _utf8(text: str, place: str) -> str:
    """Return a text from `_lines` if it was valid UTF-8 in the file, and raise otherwise."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00
        raise CorpusError(
            f"{place}: not valid UTF-8 (byte 0x{byte:02x}); the file must be encoded in UTF-8."
        ) from error
    return text


def _without_newline(line: str) -> str:
    """Drop the line end, of either kind, and nothing else."""
    return line.removesuffix("\n").removesuffix("\r")


def _parses(source: str | Path, columns: Mapping[str, str]) -> Iterator[Parse]:
    """Choose the reader by what the source is."""
    files = shards(source)
    if files != [str(source)]:
        return (parse for file in files for parse in _parses(file, columns))
    rows = _rows(source)
    if rows is not None:
        return (partial(_table_document, row, columns, place) for place, row in rows)
    if columns:
        raise CorpusError(
            f"{_name(Path(source))}: columns can be chosen only in a Hugging Face dataset "
            "or a Parquet file."
        )
    return _json_parses(source) if is_remote(source) else _file_parses(Path(source))


def _rows(source: str | Path) -> Rows | None:
    """Open a source that is a table, or a Hugging Face dataset."""
    path = Path(source)
    if is_remote(source):
        return parquet_rows(source) if path.suffix.lower() == _TABLE_SUFFIX else None
    if str(source).startswith(PREFIX):
        return hub_rows(str(source).removeprefix(PREFIX))
    if str(path) == "-":
        return None
    if not _is_folder(path):
        return parquet_rows(path) if path.suffix.lower() == _TABLE_SUFFIX else None
    if member(path, "corpus.jsonl"):
        return None
    if corpus := member(path, f"corpus{_TABLE_SUFFIX}"):
        return parquet_rows(corpus)
    if is_saved(path):
        return saved_rows(path)
    # A folder of texts may hold a table by chance, and a dataset may hold a text about itself.
    texts = any(name != "README.md" for name in _files(path, *_TEXT_SUFFIXES))
    tables = not texts and any(_files(path, _TABLE_SUFFIX))
    return hub_rows(str(path)) if tables else None


def _table_document(row: Row, columns: Mapping[str, str], place: str) -> Document:
    """Make a document of a row of a dataset; columns that are not its own are metadata."""
    names = {"id": "_id" if "_id" in row else "id", "text": "text", **columns}
    if "title" in row and "title" not in columns.values():
        names.setdefault("title", "title")
    for field, column in names.items():
        if column not in row:
            there = ", ".join(map(_shown, row))
            raise CorpusError(
                f"{place}: there is no column {_shown(column)} for the {field}, only {there}; "
                f"say which it is (--column {field}=NAME)."
            )
    record = {field: row[column] for field, column in names.items()}
    others = {key: value for key, value in row.items() if key not in names.values()}
    nested = others.pop("metadata", None)
    if isinstance(nested, str):  # Arrow's types are too strict for metadata, so they are JSON text
        with suppress(ValueError, RecursionError):
            nested = _DECODER.decode(nested)
    return _document(record, {**others, **_nested(nested, place)}, place)


def _file_parses(path: Path) -> Iterator[Parse]:
    """Choose the reader by a file's suffix, or take all files of a folder."""
    if str(path) == "-":
        return _json_parses(path)
    if _is_folder(path):
        corpus = member(path, "corpus.jsonl")
        return _json_parses(corpus) if corpus else _folder_parses(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _READERS:
        raise CorpusError(
            f"{_name(path)}: not a supported source; give a {', '.join(_READERS)} file "
            "(or any of them with .gz), a BEIR folder, a folder of .txt and .md files, "
            "a Hugging Face dataset (a saved folder, a .parquet file, or hf:NAME), "
            "or - for JSONL on standard input."
        )
    return _READERS[suffix](path)


def _is_folder(path: Path) -> bool:
    """Tell a folder from a file; raise if there is neither."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise _unreadable(_name(path), error) from error


def _json_parses(path: Path | str) -> Iterator[Parse]:
    """Read one JSON object per line."""
    name = _name(path)
    for number, line in _lines(path, name):
        if line.strip():
            yield partial(_json_document, line, f"{name} line {number}")


def _json_document(line: str, place: str) -> Document:
    """Make a document of one JSON line; its `metadata` wins over equal keys beside it."""
    record = _json_object(_utf8(line, place), place)
    if "_id" not in record and "id" not in record:
        raise CorpusError(f'{place}: "id" (or "_id") is missing; {_EXPECTED}.')
    if "text" not in record:
        raise CorpusError(f'{place}: "text" is missing; {_EXPECTED}.')
    return _document(record, _nested(record.pop("metadata", None), place), place)


def _nested(metadata: object, place: str) -> Mapping[str, Any]:
    """Return the metadata that a field of that name holds, if there is one."""
    if metadata is not None and not isinstance(metadata, dict):
        raise CorpusError(f'{place}: "metadata" is {_kind(metadata)}; it must be an object.')
    return metadata or {}


def _json_object(line: str, place: str) -> dict[str, Any]:
    """Parse one JSON object, and turn every way in which that fails into one kind of error."""
    try:
        record = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg} at column {error.colno})"
    except ValueError as error:  # NaN, Infinity, or more digits than Python turns into an integer
        problem = f"not valid JSON ({str(error).partition(':')[0]})"
    except RecursionError:
        problem = "the JSON is nested too deeply"
    else:
        if isinstance(record, dict):
            return record
        problem = f"the JSON is {_kind(record)}, not an object"
    raise CorpusError(f"{place}: {problem}; {_EXPECTED}.")


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse what Python reads as JSON and the standard does not."""
    raise ValueError(f"{constant} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _document(record: Mapping[str, Any], metadata: Mapping[str, Any], place: str) -> Document:
    """Make a document of named fields, still unchecked; all but its own fields are metadata."""
    identifier = record["_id"] if "_id" in record else record["id"]
    title = record.get("title")
    others = {key: value for key, value in record.items() if key not in _OWN_FIELDS}
    return Document(
        id=str(identifier) if type(identifier) is int else identifier,
        text=record["text"],
        title="" if title is None else title,
        metadata={**others, **metadata},
        place=place,
    )


def _tsv_parses(path: Path) -> Iterator[Parse]:
    """Read tab-separated columns, named by a header or else by how many the first row has.

    One layout holds for the whole file, so that a stray tab is an error and not a title.
    """
    name = _name(path)
    header: Sequence[str] = ()
    for number, raw in _lines(path, name):
        place = f"{name} line {number}"
        columns = _without_newline(raw).split("\t")
        if number == 1 and _names_document(columns):
            header = _header(columns, place)
        elif columns != [""]:
            header = header or _TSV_LAYOUTS.get(len(columns), ())
            yield partial(_row_document, header, columns, place)


def _csv_parses(path: Path) -> Iterator[Parse]:
    """Read comma-separated columns with quotes, named by the header."""
    name = _name(path)
    header: Sequence[str] = ()
    for place, row in _csv_rows(_lines(path, name), name):
        if header:
            yield partial(_row_document, header, row, place)
        else:
            header = _header(row, place)
    if not header:
        raise CorpusError(f'{name}: the file is empty; it must have a header with "id" and "text".')


def _csv_rows(
    lines: Lines, name: str, delimiter: str = ","
) -> Iterator[tuple[str, list[str] | csv.Error]]:
    """Yield each row, or what is wrong with it, with the line on which it starts."""
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    while True:
        place = f"{name} line {reader.line_num + 1}"
        limit = csv.field_size_limit()  # one for the whole process: put back after each row
        csv.field_size_limit(max(limit, _LARGEST_CELL))
        try:
            row: list[str] | csv.Error = next(reader)
        except csv.Error as error:
            row = error
        except StopIteration:
            return
        finally:
            csv.field_size_limit(limit)
        if row:
            yield place, row


def _names_document(columns: Sequence[str]) -> bool:
    """Tell whether the columns are a header with all that a document needs."""
    return "text" in columns and ("id" in columns or "_id" in columns)


def _header(row: Sequence[str] | csv.Error, place: str) -> Sequence[str]:
    """Return the names of the columns, once they are known to make sense."""
    columns = _cells(row, place)
    shown = ", ".join(map(_shown, columns))
    if not _names_document(columns):
        raise CorpusError(
            f'{place}: the header names {shown}; it must name "text" and "id" (or "_id").'
        )
    if len(set(columns)) < len(columns):
        raise CorpusError(f"{place}: the header names {shown}; each name must occur once.")
    return columns


def _cells(row: Sequence[str] | csv.Error, place: str) -> Sequence[str]:
    """Return the cells of a row if they could be read."""
    if isinstance(row, csv.Error):
        raise CorpusError(
            f"{place}: not valid CSV ({row}); quotes must be closed, and doubled within a cell."
        )
    return [_utf8(cell, place) for cell in row]


def _row_document(header: Sequence[str], row: Sequence[str] | csv.Error, place: str) -> Document:
    """Make a document of one row of a table."""
    cells = _cells(row, place)
    if len(cells) != len(header):
        expected = f"{len(header)} as in the first row" if header else "2, 3 or 4"
        raise CorpusError(f"{place}: the number of columns is {len(cells)}; it must be {expected}.")
    return _document(dict(zip(header, cells, strict=True)), {}, place)


def _text_parses(path: Path) -> Iterator[Parse]:
    """Read a single text file as one document."""
    yield partial(_text_document, path, path.name, _name(path))


def _folder_parses(folder: Path) -> Iterator[Parse]:
    """Read every text file below a folder; only their names are held in memory."""
    identifiers = sorted(_files(folder, *_TEXT_SUFFIXES))
    if not identifiers:
        raise CorpusError(f"{_name(folder)}: the folder has no .jsonl, .txt or .md files to read.")
    for identifier in identifiers:
        yield partial(_text_document, folder / identifier, identifier, _printable(identifier))


def _files(folder: Path, *suffixes: str) -> Iterator[str]:
    """Yield the relative path of every such file below a folder that is not hidden."""
    try:
        for parent, folders, files in os.walk(folder, onerror=_raise):
            folders[:] = _visible(folders)
            for name in _visible(files):
                if name.lower().endswith(suffixes):
                    yield (Path(parent) / name).relative_to(folder).as_posix()
    except OSError as error:
        raise _unreadable(_printable(str(error.filename or folder)), error) from error


def _raise(error: OSError) -> NoReturn:
    """Make a folder that can't be listed an error; by default it would be left out in silence."""
    raise error


def _visible(names: Iterable[str]) -> list[str]:
    """Drop the names that are hidden by convention."""
    return [name for name in names if not name.startswith(".")]


def _text_document(path: Path, identifier: str, place: str) -> Document:
    """Make a document of a whole text file."""
    lines = (_utf8(line, f"{place} line {number}") for number, line in _lines(path, place))
    return Document(identifier, "".join(lines), metadata={"path": identifier}, place=place)


_READERS: Mapping[str, Callable[[Path], Iterator[Parse]]] = {
    ".jsonl": _json_parses,
    ".ndjson": _json_parses,
    ".tsv": _tsv_parses,
    ".csv": _csv_parses,
    ".txt": _text_parses,
    ".md": _text_parses,
}


def _answers(document: Document) -> tuple[str, ...]:
    """Take the answer strings out of a query's metadata."""
    answers = document.metadata.get("answers")
    if answers is None:
        return ()
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise CorpusError(f'{document.place}: "answers" must be an array of strings.')
    return tuple(answers)


def _qrel(line: str, beir: bool, place: str) -> Qrel:
    """Make a judgement of one line; only BEIR ids, between tabs, can have spaces."""
    columns = line.split("\t") if beir else line.split()
    expected = _QRELS_HEADER if beir else ["query", "0", "document", "relevance"]
    if len(columns) != len(expected) or not all(columns):
        raise CorpusError(
            f"{place}: the columns must be {', '.join(expected)}, none of them empty"
            f"{', between tabs' if beir else ''}; there are {len(columns)}."
        )
    query, document, relevance = columns[0], columns[-2], columns[-1]
    try:
        return Qrel(query, document, int(relevance))
    except ValueError as error:
        problem = f"the relevance is {_shown(relevance)}; it must be an integer"
        raise CorpusError(f"{place}: {problem}.") from error
