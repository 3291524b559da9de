"""Write documents for other programs: as a BEIR folder or as a Hugging Face dataset.

beir       corpus.jsonl; with a test collection also queries.jsonl and qrels/SPLIT.tsv
parquet    corpus.parquet, queries.parquet, qrels/SPLIT.parquet, and a README.md that tells
           `datasets.load_dataset`, the Hub and MTEB which is which

`pseudoquery index` reads both formats, and an export loses nothing. The folder appears only once
all of it is on disk.
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
"""The most rows and characters in a row group, the unit in which Parquet is read and written."""
ExportedRow: TypeAlias = dict[str, Any]
_DOCUMENT = ("_id", "title", "text", "metadata")
_QUERY = ("_id", "text", "metadata")
_QREL = ("query-id", "corpus-id", "score")
_HUB_SPLIT = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class JudgedSplit:
    """A split of a test collection: its queries and judgements are exported with the documents."""

    dataset: Dataset
    split: str


@dataclass(slots=True)
class Exported:
    """How many documents, queries and judgements were written."""

    documents: int = 0
    queries: int = 0
    judgements: int = 0


def export(
    documents: Iterable[Document],
    folder: Path,
    format_: ExportFormat = "beir",
    *,
    judged: JudgedSplit | None = None,
) -> Exported:
    """Write documents into a new folder, and with `judged` also queries and judgements.

    Examples:
        >>> export([Document("bees", "Bees tremble.")], Path("exported"))
        Exported(documents=1, queries=0, judgements=0)
        >>> Path("exported/corpus.jsonl").read_text().strip()
        '{"_id": "bees", "title": "", "text": "Bees tremble.", "metadata": {}}'
    """
    if format_ not in EXPORT_FORMATS:
        raise QueryError(
            f"there is no format {format_!r}; choose one of {', '.join(EXPORT_FORMATS)}."
        )
    exported = Exported()
    with new_folder(folder) as unfinished:
        rows = _document_rows(documents, judged, exported)
        write = _write_beir if format_ == "beir" else _write_parquet
        write(unfinished, rows, judged)
    if judged:
        exported.queries = len(judged.dataset.queries)
        exported.judgements = len(judged.dataset.qrels)
    return exported


def _document_rows(
    documents: Iterable[Document], judged: JudgedSplit | None, exported: Exported
) -> Iterator[ExportedRow]:
    """Yield a row for each document, and count; raise if the judgements name none of them."""
    judged_ids = {qrel.document_id for qrel in judged.dataset.qrels} if judged else set()
    unseen = set(judged_ids)
    for document in documents:
        exported.documents += 1
        unseen.discard(document.id)
        values = (document.id, document.title, document.text, dict(document.metadata))
        yield dict(zip(_DOCUMENT, values, strict=True))
    if judged and judged_ids and unseen == judged_ids:
        raise CorpusError(
            f"{judged.dataset.name} judges none of the exported documents; export an index of this "
            "collection."
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
            f"the judgement {tuple(columns)!r} has an id with a tab or a newline, which a BEIR "
            "folder can't hold; choose the format parquet."
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
                f"{split!r} can't be the name of a split of a Hugging Face dataset; use only "
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
    """Group rows, and write metadata as JSON text: a column of Parquet has only one type."""
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
    """Write the README.md that tells the Hub and `datasets` which file is which part."""
    lines = ["---", "configs:"]
    for name, (split, path) in parts.items():
        config = {"config_name": name, "data_files": [{"split": split, "path": path}]}
        lines.append(f"- {json.dumps(config)}")  # JSON is YAML, and quotes what YAML would guess
    return "\n".join([*lines, "---", ""])
