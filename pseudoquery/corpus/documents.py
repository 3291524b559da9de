"""Reading documents, queries and judgements from files, one record at a time.

Every format is a generator of parses: calls without arguments that each make one document or raise
one CorpusError. A bad record thus never ends its generator, and `read_documents` alone decides
whether it is fatal. Faults of a whole file (missing, cut short, no header) are always raised.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from pseudoquery.corpus.formats import (
    Parse,
    checked_cells,
    csv_parses,
    csv_rows,
    json_parses,
    table_document,
    text_document,
    text_parses,
    tsv_parses,
)
from pseudoquery.corpus.huggingface import (
    PREFIX,
    Rows,
    hub_rows,
    is_saved,
    parquet_rows,
    saved_rows,
)
from pseudoquery.corpus.lines import (
    member,
    numbered_lines,
    printable,
    read_lines,
    shown_name,
    unreadable_error,
)
from pseudoquery.corpus.remote import files_at, is_remote
from pseudoquery.corpus.validation import check_document, show_value
from pseudoquery.errors import CorpusError, OnBad
from pseudoquery.records import Document, Qrel, Query

_QRELS_HEADER = ["query-id", "corpus-id", "score"]
_TEXT_SUFFIXES = (".txt", ".md")
_TABLE_SUFFIX = ".parquet"
_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


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
    # Not those of folders below: a document's origin is told by the name of its file.
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
    for parse in _parses(path, {}) if path.suffix == _TABLE_SUFFIX else json_parses(path):
        document = parse()
        check_document(document)
        yield Query(document.id, document.text, _answers(document))


def read_qrels(path: str | Path) -> Iterator[Qrel]:
    """Yield the judgements of a BEIR file, known by its header, or of a TREC file, without one."""
    beir = False
    for number, (origin, line) in enumerate(read_lines(Path(path))):
        if number == 0 and line.split() == _QRELS_HEADER:
            beir = True
        elif line.strip():
            yield _qrel(line, beir, origin)


def read_rows(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the rows of a tab-separated file with quotes as in a CSV file, each with its origin."""
    name = shown_name(path)
    for origin, row in csv_rows(numbered_lines(path, name), name, "\t"):
        yield origin, checked_cells(row, origin)


def _parses(source: str | Path, columns: Mapping[str, str]) -> Iterator[Parse]:
    """Choose the reader by what the source is."""
    files = shards(source)
    if files != [str(source)]:
        return (parse for file in files for parse in _parses(file, columns))
    rows = _rows(source)
    if rows is not None:
        return (partial(table_document, row, columns, origin) for origin, row in rows)
    if columns:
        raise CorpusError(
            f"{shown_name(Path(source))}: columns can be chosen only in a Hugging Face dataset "
            "or a Parquet file."
        )
    return json_parses(source) if is_remote(source) else _file_parses(Path(source))


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


def _file_parses(path: Path) -> Iterator[Parse]:
    """Choose the reader by a file's suffix, or take all files of a folder."""
    if str(path) == "-":
        return json_parses(path)
    if _is_folder(path):
        corpus = member(path, "corpus.jsonl")
        return json_parses(corpus) if corpus else _folder_parses(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _READERS:
        raise CorpusError(
            f"{shown_name(path)}: not a supported source; give a {', '.join(_READERS)} file "
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
        raise unreadable_error(shown_name(path), error) from error


def _folder_parses(folder: Path) -> Iterator[Parse]:
    """Read every text file below a folder; only their names are held in memory."""
    identifiers = sorted(_files(folder, *_TEXT_SUFFIXES))
    if not identifiers:
        raise CorpusError(
            f"{shown_name(folder)}: the folder has no .jsonl, .txt or .md files to read."
        )
    for identifier in identifiers:
        yield partial(text_document, folder / identifier, identifier, printable(identifier))


def _files(folder: Path, *suffixes: str) -> Iterator[str]:
    """Yield the relative path of every such file below a folder that is not hidden."""
    try:
        for parent, folders, files in os.walk(folder, onerror=_raise):
            folders[:] = _visible(folders)
            for name in _visible(files):
                if name.lower().endswith(suffixes):
                    yield (Path(parent) / name).relative_to(folder).as_posix()
    except OSError as error:
        raise unreadable_error(printable(str(error.filename or folder)), error) from error


def _raise(error: OSError) -> NoReturn:
    """Make a folder that can't be listed an error; by default it would be left out in silence."""
    raise error


def _visible(names: Iterable[str]) -> list[str]:
    """Drop the names that are hidden by convention."""
    return [name for name in names if not name.startswith(".")]


_READERS: Mapping[str, Callable[[Path], Iterator[Parse]]] = {
    ".jsonl": json_parses,
    ".ndjson": json_parses,
    ".tsv": tsv_parses,
    ".csv": csv_parses,
    ".txt": text_parses,
    ".md": text_parses,
}


def _answers(document: Document) -> tuple[str, ...]:
    """Take the answer strings out of a query's metadata."""
    answers = document.metadata.get("answers")
    if answers is None:
        return ()
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise CorpusError(f'{document.origin}: "answers" must be an array of strings.')
    return tuple(answers)


def _qrel(line: str, beir: bool, origin: str) -> Qrel:
    """Make a judgement of one line; only BEIR ids, between tabs, can have spaces."""
    columns = line.split("\t") if beir else line.split()
    expected = _QRELS_HEADER if beir else ["query", "0", "document", "relevance"]
    if len(columns) != len(expected) or not all(columns):
        raise CorpusError(
            f"{origin}: the columns must be {', '.join(expected)}, none of them empty"
            f"{', between tabs' if beir else ''}; there are {len(columns)}."
        )
    query, document, relevance = columns[0], columns[-2], columns[-1]
    try:
        return Qrel(query, document, int(relevance))
    except ValueError as error:
        problem = f"the relevance is {show_value(relevance)}; it must be an integer"
        raise CorpusError(f"{origin}: {problem}.") from error
