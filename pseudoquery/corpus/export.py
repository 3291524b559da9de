"""Write documents for other programs: as a BEIR folder or as a Hugging Face dataset.

beir       corpus.jsonl; with a test collection also queries.jsonl and qrels/SPLIT.tsv
parquet    corpus.parquet, queries.parquet, qrels/SPLIT.parquet, and a README.md that tells
           `datasets.load_dataset`, the Hub and MTEB which is which

`pseudoquery index` reads both, and nothing is lost on the way. A folder is there when all of it is
on disk, and not before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.corpus.huggingface import CORPUS, import_arrow
from pseudoquery.errors import CorpusError, QueryError
from pseudoquery.files import new_folder
from pseudoquery.records import Document, Query

ExportFormat = Literal["beir", "parquet"]
EXPORT_FORMATS: tuple[str, ...] = get_args(ExportFormat)
GROUP_ROWS, GROUP_CHARACTERS = 1000, 1 << 24
"""A Parquet file is written, and can be read, in groups of at most this size."""
ExportedRow: TypeAlias = dict[str, Any]
_DOCUMENT = ("_id", "title", "text", "metadata")
_QUERY = ("_id", "text", "metadata")
_QREL = ("query-id", "corpus-id", "score")
_HUB_SPLIT = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class JudgedSplit:
    """A split of a test collection, whose queries and judgements go with the documents."""

    dataset: Dataset
    split: str


@dataclass(slots=True)
class Exported:
    """How much was written."""

    documents: int = 0
    queries: int = 0
    judgements: int = 0


def export(
    documents: Iterable[Document],
    folder: Path,
    form: ExportFormat = "beir",
    *,
    judged: JudgedSplit | None = None,
) -> Exported:
    """Write documents into a new folder, in constant memory, with the queries that judge them."""
    if form not in EXPORT_FORMATS:
        raise QueryError(f"there is no format {form!r}; choose one of {', '.join(EXPORT_FORMATS)}.")
    done = Exported()
    with new_folder(folder) as fresh:
        rows = _document_rows(documents, judged, done)
        write = _write_beir if form == "beir" else _write_parquet
        write(fresh, rows, judged)
    if judged:
        done.queries, done.judgements = len(judged.dataset.queries), len(judged.dataset.qrels)
    return done


def _document_rows(
    documents: Iterable[Document], judged: JudgedSplit | None, done: Exported
) -> Iterator[ExportedRow]:
    """Count documents as they pass; some of them must be what the judgements are about."""
    wanted = {qrel.document_id for qrel in judged.dataset.qrels} if judged else set()
    unseen = set(wanted)
    for document in documents:
        done.documents += 1
        unseen.discard(document.id)
        values = (document.id, document.title, document.text, dict(document.metadata))
        yield dict(zip(_DOCUMENT, values, strict=True))
    if judged and wanted and unseen == wanted:
        raise CorpusError(
            f"none of the documents that {judged.dataset.name} judges is among these; "
            "the index and the collection do not belong together."
        )


def _query_rows(queries: Iterable[Query]) -> Iterator[ExportedRow]:
    for query in queries:
        metadata = {"answers": list(query.answers)} if query.answers else {}
        yield dict(zip(_QUERY, (query.id, query.text, metadata), strict=True))


def _write_beir(folder: Path, documents: Iterable[ExportedRow], judged: JudgedSplit | None) -> None:
    _write_lines(folder / f"{CORPUS}.jsonl", documents)
    if judged:
        _write_lines(folder / "queries.jsonl", _query_rows(judged.dataset.queries))
        (folder / "qrels").mkdir()
        path = folder / "qrels" / f"{judged.split}.tsv"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(map(_tsv_line, [_QREL, *judged.dataset.qrels]))


def _write_lines(path: Path, rows: Iterable[ExportedRow]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _tsv_line(columns: Sequence[object]) -> str:
    line = "\t".join(map(str, columns))
    if line.count("\t") != 2 or "\n" in line:
        raise CorpusError(
            f"the judgement {tuple(columns)!r} has an id with a tab or a line end, which BEIR's "
            "files can't hold; write another format, such as parquet."
        )
    return f"{line}\n"


def _write_parquet(
    folder: Path, documents: Iterable[ExportedRow], judged: JudgedSplit | None
) -> None:
    parts = {CORPUS: (CORPUS, f"{CORPUS}.parquet")}
    _write_table(folder / f"{CORPUS}.parquet", _DOCUMENT, documents)
    if judged:
        split = judged.split
        if not _HUB_SPLIT.fullmatch(split):
            raise CorpusError(
                f"{split!r} is no name for a split of a Hugging Face dataset, which has only "
                "letters, digits, underscores and dots."
            )
        parts["queries"] = ("queries", "queries.parquet")
        parts["default"] = (split, f"qrels/{split}.parquet")
        (folder / "qrels").mkdir()
        _write_table(folder / "queries.parquet", _QUERY, _query_rows(judged.dataset.queries))
        qrels = (dict(zip(_QREL, qrel, strict=True)) for qrel in judged.dataset.qrels)
        _write_table(folder / "qrels" / f"{split}.parquet", _QREL, qrels)
    (folder / "README.md").write_text(_describe_parts(parts), encoding="utf-8")


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[ExportedRow]) -> None:
    pyarrow, parquet = import_arrow("pyarrow"), import_arrow("pyarrow.parquet")
    types = {"score": pyarrow.int64()}
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in columns])
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:
        for group in _group_rows(rows):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


def _group_rows(rows: Iterable[ExportedRow]) -> Iterator[list[ExportedRow]]:
    """Group rows; metadata become JSON text, since a column's values must be of one type."""
    group: list[ExportedRow] = []
    size = 0
    for row in rows:
        if "metadata" in row:
            row["metadata"] = json.dumps(row["metadata"], ensure_ascii=False)
        group.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) == GROUP_ROWS or size >= GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _describe_parts(parts: Mapping[str, tuple[str, str]]) -> str:
    """Say, for the Hub and for `datasets`, which file is which part of the dataset."""
    lines = ["---", "configs:"]
    for name, (split, path) in parts.items():
        config = {"config_name": name, "data_files": [{"split": split, "path": path}]}
        lines.append(f"- {json.dumps(config)}")  # JSON is YAML, and quotes what YAML would guess
    return "\n".join([*lines, "---", ""])
