"""Make documents of JSON lines, TSV, CSV, text files and the rows of tables.

Each format is a generator of parses: functions without arguments that return one document, or raise
a CorpusError about one record. A bad record then never ends the generator. What is wrong with a
whole file, such as a missing header, is raised at once.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from pseudoquery.corpus.huggingface import DatasetRow
from pseudoquery.corpus.lines import (
    NumberedLines,
    check_utf8,
    read_numbered_lines,
    show_name,
    strip_newline,
)
from pseudoquery.corpus.validation import check_document, describe_type, show_value
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document

Parse: TypeAlias = Callable[[], Document]
"""Parses one record: returns its document, or raises what is wrong with it."""
_EXPECTED = 'each line must be one JSON object with "id" and "text"'
_DOCUMENT_FIELDS = frozenset({"_id", "id", "text", "title"})
_TSV_LAYOUTS = {2: ("id", "text"), 3: ("id", "title", "text"), 4: ("id", "url", "title", "text")}
_LARGEST_CELL = 2**26
"""How many characters a CSV cell may have: enough for any document, and yet a quote that is never
closed can't fill the memory."""


def parse_document(line: bytes, origin: str) -> Document:
    """Make a document of one line of JSON, and check it; errors name the origin."""
    document = _parse_json_line(line.decode("utf-8", "surrogateescape"), origin)
    check_document(document)
    return document


def parse_row(row: DatasetRow, columns: Mapping[str, str], origin: str) -> Document:
    """Make a document of a row of a dataset. Every other column is stored as metadata."""
    names = {"id": "_id" if "_id" in row else "id", "text": "text", **columns}
    if "title" in row and "title" not in columns.values():
        names.setdefault("title", "title")
    for field, column in names.items():
        if column not in row:
            known = ", ".join(map(show_value, row))
            raise CorpusError(
                f"{origin}: there is no column {show_value(column)} for the {field}, only {known}; "
                f"name the right one (--column {field}=NAME)."
            )
    record = {field: row[column] for field, column in names.items()}
    others = {key: value for key, value in row.items() if key not in names.values()}
    nested = others.pop("metadata", None)
    if isinstance(nested, str):  # exported as JSON text, because a column of Arrow has one type
        with suppress(ValueError, RecursionError):
            nested = _DECODER.decode(nested)
    return _make_document(record, {**others, **_check_metadata(nested, origin)}, origin)


def read_json_lines(path: Path | str) -> Iterator[Parse]:
    """Read a file that has one JSON object on each line."""
    name = show_name(path)
    for number, line in read_numbered_lines(path, name):
        if line.strip():
            yield partial(_parse_json_line, line, f"{name} line {number}")


def _parse_json_line(line: str, origin: str) -> Document:
    """Make a document of one JSON line; a key in `metadata` wins over an equal key beside it."""
    record = _parse_json_object(check_utf8(line, origin), origin)
    if "_id" not in record and "id" not in record:
        raise CorpusError(f'{origin}: "id" (or "_id") is missing; {_EXPECTED}.')
    if "text" not in record:
        raise CorpusError(f'{origin}: "text" is missing; {_EXPECTED}.')
    return _make_document(record, _check_metadata(record.pop("metadata", None), origin), origin)


def _check_metadata(metadata: object, origin: str) -> Mapping[str, Any]:
    """Return the object in the field `metadata`; {} if there is none."""
    if metadata is not None and not isinstance(metadata, dict):
        raise CorpusError(
            f'{origin}: "metadata" is {describe_type(metadata)}; it must be an object.'
        )
    return metadata or {}


def _parse_json_object(line: str, origin: str) -> dict[str, Any]:
    """Parse one JSON object; whatever goes wrong is a CorpusError."""
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
        problem = f"the JSON is {describe_type(record)}, not an object"
    raise CorpusError(f"{origin}: {problem}; {_EXPECTED}.")


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads as JSON and the standard does not."""
    raise ValueError(f"{constant} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _make_document(record: Mapping[str, Any], metadata: Mapping[str, Any], origin: str) -> Document:
    """Make a document of named fields, without a check. Every other field is stored as metadata."""
    identifier = record["_id"] if "_id" in record else record["id"]
    title = record.get("title")
    others = {key: value for key, value in record.items() if key not in _DOCUMENT_FIELDS}
    return Document(
        id=str(identifier) if type(identifier) is int else identifier,
        text=record["text"],
        title="" if title is None else title,
        metadata={**others, **metadata},
        origin=origin,
    )


def read_tsv(path: Path) -> Iterator[Parse]:
    """Read tab-separated columns. A header names them; without one, their number does.

    All rows must have the layout of the first: a stray tab is an error, not a title.
    """
    name = show_name(path)
    header: Sequence[str] = ()
    for number, raw in read_numbered_lines(path, name):
        origin = f"{name} line {number}"
        columns = strip_newline(raw).split("\t")
        if number == 1 and _is_header(columns):
            header = _check_header(columns, origin)
        elif columns != [""]:
            header = header or _TSV_LAYOUTS.get(len(columns), ())
            yield partial(_parse_cells, header, columns, origin)


def read_csv(path: Path) -> Iterator[Parse]:
    """Read comma-separated columns, with quotes as usual. The header names them."""
    name = show_name(path)
    header: Sequence[str] = ()
    for origin, row in read_csv_rows(read_numbered_lines(path, name), name):
        if header:
            yield partial(_parse_cells, header, row, origin)
        else:
            header = _check_header(row, origin)
    if not header:
        raise CorpusError(f'{name}: the file is empty; it must have a header with "id" and "text".')


def read_csv_rows(
    lines: NumberedLines, name: str, delimiter: str = ","
) -> Iterator[tuple[str, list[str] | csv.Error]]:
    """Yield each row, or the error in it, with the line on which it starts."""
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    while True:
        origin = f"{name} line {reader.line_num + 1}"
        limit = csv.field_size_limit()  # the process has only one: it is restored after each row
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
            yield origin, row


def read_quoted_tsv(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the rows of a tab-separated file with quotes as in CSV, each with its origin."""
    name = show_name(path)
    for origin, row in read_csv_rows(read_numbered_lines(path, name), name, "\t"):
        yield origin, check_cells(row, origin)


def _is_header(columns: Sequence[str]) -> bool:
    """Say whether a row is a header: whether it names an id and a text."""
    return "text" in columns and ("id" in columns or "_id" in columns)


def _check_header(row: Sequence[str] | csv.Error, origin: str) -> Sequence[str]:
    """Return the names in a header, or raise if they can't name a document's fields."""
    columns = check_cells(row, origin)
    shown = ", ".join(map(show_value, columns))
    if not _is_header(columns):
        raise CorpusError(
            f'{origin}: the header names {shown}; it must name "text" and "id" (or "_id").'
        )
    if len(set(columns)) < len(columns):
        raise CorpusError(f"{origin}: the header names {shown}; each name must occur once.")
    return columns


def check_cells(row: Sequence[str] | csv.Error, origin: str) -> Sequence[str]:
    """Return the cells of a row, or raise if the row can't be read."""
    if isinstance(row, csv.Error):
        raise CorpusError(
            f"{origin}: not valid CSV ({row}); quotes must be closed, and doubled within a cell."
        )
    return [check_utf8(cell, origin) for cell in row]


def _parse_cells(header: Sequence[str], row: Sequence[str] | csv.Error, origin: str) -> Document:
    """Make a document of one row of a TSV or CSV file."""
    cells = check_cells(row, origin)
    if len(cells) != len(header):
        expected = f"{len(header)} as in the first row" if header else "2, 3 or 4"
        raise CorpusError(
            f"{origin}: the number of columns is {len(cells)}; it must be {expected}."
        )
    return _make_document(dict(zip(header, cells, strict=True)), {}, origin)


def read_text(path: Path) -> Iterator[Parse]:
    """Read a text file as one document."""
    yield partial(parse_text_file, path, path.name, show_name(path))


def parse_text_file(path: Path, identifier: str, origin: str) -> Document:
    """Make a document of a whole text file."""
    lines = (
        check_utf8(line, f"{origin} line {number}")
        for number, line in read_numbered_lines(path, origin)
    )
    return Document(identifier, "".join(lines), metadata={"path": identifier}, origin=origin)
