"""Read documents, queries and judgements from any source, one record at a time.

This module chooses the reader for a source. `formats` parses records, and `read_documents` alone
decides whether a bad record ends the reading. A bad file (missing, cut short) always does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from pseudoquery.corpus.formats import (
    Parse,
    parse_row,
    parse_text_file,
    read_csv,
    read_json_lines,
    read_text,
    read_tsv,
)
from pseudoquery.corpus.huggingface import (
    HUB_PREFIX,
    DatasetRows,
    is_saved_dataset,
    read_hub_dataset,
    read_parquet,
    read_saved_dataset,
)
from pseudoquery.corpus.lines import (
    escape_name,
    find_file,
    read_lines,
    show_name,
    unreadable_error,
)
from pseudoquery.corpus.remote import is_remote, list_remote_files
from pseudoquery.corpus.validation import check_document, show_value
from pseudoquery.errors import CorpusError, OnBad
from pseudoquery.records import Document, Qrel, Query

LARGEST_RELEVANCE = 2**31 - 1
"""What programs that evaluate take."""
_QRELS_HEADER = ["query-id", "corpus-id", "score"]
_TEXT_SUFFIXES = (".txt", ".md")
_TABLE_SUFFIX = ".parquet"
_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


def read_documents(
    source: str | Path, *, on_bad: OnBad | None = None, columns: Mapping[str, str] | None = None
) -> Iterator[Document]:
    r"""Yield the documents of a file, a folder, standard input ("-") or a Hugging Face dataset.

    JSON lines and Parquet files may also be remote, such as s3://BUCKET/FOLDER. A record that can't
    be used raises an error; with `on_bad`, the error goes to `on_bad` and the record is skipped.
    `columns` names the columns of a dataset that are the id, the text and the title. Memory holds
    one record at a time.

    Examples:
        >>> _ = Path("bees.csv").write_text("id,text,year\na,Bees tremble.,2019\n")
        >>> next(read_documents("bees.csv"))
        Document(id='a', text='Bees tremble.', title='', metadata={'year': '2019'},
                 origin='bees.csv line 2')
    """
    for parse in _read_source(source, columns or {}):
        try:
            document = parse()
            check_document(document)
        except CorpusError as error:
            if on_bad is None:
                raise
            on_bad(error)
        else:
            yield document


def list_shards(source: str | Path) -> list[str]:
    """List the files of a source that can be read independently; most sources are one file."""
    if is_remote(source):
        return list_remote_files(str(source), *_LINES_SUFFIXES, _TABLE_SUFFIX)
    path = Path(source)
    if str(source).startswith(HUB_PREFIX) or str(path) == "-" or not _is_folder(path):
        return [str(source)]
    others = (*_TEXT_SUFFIXES, _TABLE_SUFFIX)
    if find_file(path, "corpus.jsonl") or is_saved_dataset(path) or any(_list_files(path, *others)):
        return [str(source)]
    # Not the files of subfolders: a document's origin gives only the name of its file.
    names = [name for name in _list_files(path, *_LINES_SUFFIXES) if "/" not in name]
    return [str(path / name) for name in sorted(names)] or [str(source)]


def read_queries(folder_or_file: str | Path) -> Iterator[Query]:
    """Yield the queries of a BEIR folder, or of a file such as its queries.jsonl.

    A Parquet file may take the place of the JSONL file.
    """
    path = Path(folder_or_file)
    if str(path) != "-" and _is_folder(path):
        names = ("queries.jsonl", f"queries{_TABLE_SUFFIX}")
        path = next(filter(None, (find_file(path, name) for name in names)), path / names[0])
    for parse in _read_source(path, {}) if path.suffix == _TABLE_SUFFIX else read_json_lines(path):
        document = parse()
        check_document(document)
        yield Query(document.id, document.text, _take_answers(document))


def read_qrels(path: str | Path) -> Iterator[Qrel]:
    """Yield the judgements of a BEIR file, which has a header, or a TREC file, which has none."""
    beir = False
    for number, (origin, line) in enumerate(read_lines(Path(path))):
        if number == 0 and line.split() == _QRELS_HEADER:
            beir = True
        elif line.strip():
            yield _parse_qrel(line, beir, origin)


def _read_source(source: str | Path, columns: Mapping[str, str]) -> Iterator[Parse]:
    """Choose the reader of a source."""
    files = list_shards(source)
    if files != [str(source)]:
        return (parse for file in files for parse in _read_source(file, columns))
    rows = _open_table(source)
    if rows is not None:
        return (partial(parse_row, row, columns, origin) for origin, row in rows)
    if columns:
        raise CorpusError(
            f"{show_name(Path(source))}: the columns of this file can't be chosen, only those of a "
            "Hugging Face dataset or a Parquet file; leave --column out."
        )
    return read_json_lines(source) if is_remote(source) else _read_path(Path(source))


def _open_table(source: str | Path) -> DatasetRows | None:
    """Open a Parquet file or a Hugging Face dataset; None if the source is neither."""
    path = Path(source)
    if is_remote(source):
        return read_parquet(source) if path.suffix.lower() == _TABLE_SUFFIX else None
    if str(source).startswith(HUB_PREFIX):
        return read_hub_dataset(str(source).removeprefix(HUB_PREFIX))
    if str(path) == "-":
        return None
    if not _is_folder(path):
        return read_parquet(path) if path.suffix.lower() == _TABLE_SUFFIX else None
    if find_file(path, "corpus.jsonl"):
        return None
    if corpus := find_file(path, f"corpus{_TABLE_SUFFIX}"):
        return read_parquet(corpus)
    if is_saved_dataset(path):
        return read_saved_dataset(path)
    # A folder of texts may contain a table by chance, and a dataset may contain its README.md.
    texts = any(name != "README.md" for name in _list_files(path, *_TEXT_SUFFIXES))
    tables = not texts and any(_list_files(path, _TABLE_SUFFIX))
    return read_hub_dataset(str(path)) if tables else None


def _read_path(path: Path) -> Iterator[Parse]:
    """Choose the reader of a file by its suffix, or read all files of a folder."""
    if str(path) == "-":
        return read_json_lines(path)
    if _is_folder(path):
        corpus = find_file(path, "corpus.jsonl")
        return read_json_lines(corpus) if corpus else _read_text_folder(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _READERS:
        raise CorpusError(
            f"{show_name(path)}: files of this kind can't be read; give a "
            f"{', '.join(_READERS)} file (or any of them with .gz), a BEIR folder, "
            "a folder of .txt and .md files, a Hugging Face dataset (a saved folder, "
            "a .parquet file, or hf:NAME), or - for JSONL on standard input."
        )
    return _READERS[suffix](path)


def _is_folder(path: Path) -> bool:
    """Say whether a path is a folder; raise if nothing is there."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise unreadable_error(show_name(path), error) from error


def _read_text_folder(folder: Path) -> Iterator[Parse]:
    """Read every text file below a folder, in the order of their names."""
    identifiers = sorted(_list_files(folder, *_TEXT_SUFFIXES))
    if not identifiers:
        raise CorpusError(
            f"{show_name(folder)}: the folder has no .jsonl, .txt or .md files; choose another."
        )
    for identifier in identifiers:
        yield partial(parse_text_file, folder / identifier, identifier, escape_name(identifier))


def _list_files(folder: Path, *suffixes: str) -> Iterator[str]:
    """Yield the relative paths of the visible files below a folder whose names end so."""
    try:
        for parent, folders, files in os.walk(folder, onerror=_raise):
            folders[:] = _drop_hidden(folders)
            for name in _drop_hidden(files):
                if name.lower().endswith(suffixes):
                    yield (Path(parent) / name).relative_to(folder).as_posix()
    except OSError as error:
        raise unreadable_error(escape_name(str(error.filename or folder)), error) from error


def _raise(error: OSError) -> NoReturn:
    """Raise the error of a folder that can't be listed; `os.walk` would skip it silently."""
    raise error


def _drop_hidden(names: Iterable[str]) -> list[str]:
    """Drop the names of hidden files, which begin with a dot."""
    return [name for name in names if not name.startswith(".")]


_READERS: Mapping[str, Callable[[Path], Iterator[Parse]]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".tsv": read_tsv,
    ".csv": read_csv,
    ".txt": read_text,
    ".md": read_text,
}


def _take_answers(document: Document) -> tuple[str, ...]:
    """Return the answer strings in a query's metadata."""
    answers = document.metadata.get("answers")
    if answers is None:
        return ()
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise CorpusError(f'{document.origin}: "answers" must be an array of strings.')
    return tuple(answers)


def _parse_qrel(line: str, beir: bool, origin: str) -> Qrel:
    """Make a judgement of one line. BEIR separates by tabs: only its ids can have spaces."""
    columns = line.split("\t") if beir else line.split()
    expected = _QRELS_HEADER if beir else ["query", "0", "document", "relevance"]
    if len(columns) != len(expected) or not all(columns):
        raise CorpusError(
            f"{origin}: the columns must be {', '.join(expected)}, none of them empty"
            f"{', between tabs' if beir else ''}; there are {len(columns)}."
        )
    query, document, relevance = columns[0], columns[-2], columns[-1]
    try:
        number = int(relevance)
        if abs(number) > LARGEST_RELEVANCE:
            raise ValueError(relevance)
    except ValueError as error:
        problem = f"the relevance is {show_value(relevance)}; it must be an integer of 32 bits"
        raise CorpusError(f"{origin}: {problem}.") from error
    return Qrel(query, document, number)
