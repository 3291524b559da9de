"""Rankings on disk: TREC run files, in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pseudoquery.errors import CorpusError
from pseudoquery.records import Answer, Query

Run = Mapping[str, Sequence[tuple[str, float]]]
"""For each query's id, the ids and scores of its documents, best first."""


def run_of(queries: Sequence[Query], answers: Sequence[Answer]) -> Run:
    """Make a run of the answers to queries."""
    return {
        query.id: [(hit.id, hit.score) for hit in answer.hits]
        for query, answer in zip(queries, answers, strict=True)
    }


def write_run(run: Run, path: Path, name: str = "pseudoquery") -> None:
    """Write lines of `query Q0 document rank score name`."""
    with path.open("w", encoding="utf-8") as file:
        for query, ranking in run.items():
            for rank, (document, score) in enumerate(ranking, start=1):
                if len(f"{query} {document} {name}".split()) != 3:
                    raise CorpusError(
                        f"{path}: the ids {query!r} and {document!r} can't be written to a run "
                        "file, whose columns are separated by spaces; rename them."
                    )
                file.write(f"{query} Q0 {document} {rank} {score!r} {name}\n")


def read_run(path: Path) -> Run:
    """Read a run file; its ranks decide the order, then its scores."""
    rows: dict[str, list[tuple[int, float, str]]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
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
        rows.setdefault(query, []).append(row)
    return {
        query: [(document, -score) for _, score, document in sorted(own)]
        for query, own in rows.items()
    }
