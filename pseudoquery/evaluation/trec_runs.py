"""TREC run files: rankings on disk, written and read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pseudoquery.errors import CorpusError

Run = Mapping[str, Sequence[tuple[str, float]]]
"""For each query's id, the ids and scores of its documents, best first."""


def write_run(run: Run, path: Path, name: str = "pseudoquery") -> None:
    """Write a run file: lines of `query Q0 document rank score name`."""
    # Every id is checked before the first line is written: half a run would pass for a whole one.
    for query, ranking in run.items():
        for column in (name, query, *(document for document, _ in ranking)):
            if column.split() != [column]:
                raise CorpusError(
                    f"{path}: {column!r} can't be written to a run file, whose columns are "
                    "separated by spaces; rename it."
                )
    with path.open("w", encoding="utf-8") as file:
        for query, ranking in run.items():
            for rank, (document, score) in enumerate(ranking, start=1):
                file.write(f"{query} Q0 {document} {rank} {float(score)!r} {name}\n")


def read_run(path: Path) -> Run:
    """Read a run file; its ranks decide the order, then its scores."""
    # ir_measures.read_trec_run would lose the ranks, and does not say which line is bad.
    rows: dict[str, dict[str, tuple[int, float, str]]] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} can't be read as a run file ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query, _, document, rank, score, _ = line.split()
            row = (int(rank), -float(score), document)
        except ValueError:
            raise CorpusError(
                f"{path} line {number}: a run file has six columns: query, Q0, document, rank, "
                "score and name."
            ) from None
        if math.isnan(row[1]):
            raise CorpusError(f"{path} line {number}: the score is not a number.")
        if document in rows.setdefault(query, {}):
            raise CorpusError(
                f"{path} line {number}: the query {query!r} has the document {document!r} already."
            )
        rows[query][document] = row
    return {
        query: [(document, -score) for _, score, document in sorted(documents.values())]
        for query, documents in rows.items()
    }
