"""Test collections by name: documents, queries and judgements in the formats that people have.

FOLDER with corpus.jsonl           BEIR: queries.jsonl and qrels/SPLIT.tsv beside it
FOLDER with collection.tsv         MS MARCO passages: queries.SPLIT.tsv, qrels.SPLIT.tsv
FOLDER with msmarco-docs.tsv       MS MARCO documents: msmarco-docSPLIT-queries.tsv, -qrels.tsv
FOLDER with psgs_w100.tsv          DPR: a *SPLIT*.json of questions with answers and passages
irds:ID                            anything that ir_datasets knows (an extra)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pseudoquery.corpus import read_documents, read_qrels, read_queries
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

BUNDLED = ("squad-dev",)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A test collection; its documents are streamed each time they are asked for."""

    name: str
    source: str
    """What `pseudoquery index` takes to index the documents; "" if they are not in files."""
    documents: Callable[[], Iterator[Document]]
    queries: tuple[Query, ...]
    """Those that have a judgement in this split."""
    qrels: tuple[Qrel, ...]


def load_dataset(name: str, split: str) -> Dataset:
    """Find a test collection by its folder or its ir_datasets id."""
    if name.startswith("irds:"):
        return _from_ir_datasets(name.removeprefix("irds:"))
    folder = Path(str(files("pseudoquery") / "data" / name)) if name in BUNDLED else Path(name)
    for marker, loader in _LOADERS.items():
        if (folder / marker).is_file():
            return loader(folder, folder / marker, split)
    raise CorpusError(
        f"{name} is no test collection: it should be a folder with one of "
        f"{', '.join(_LOADERS)}; or irds: and an ir_datasets id; or {', '.join(BUNDLED)}."
    )


def _beir(folder: Path, corpus: Path, split: str) -> Dataset:
    qrels = tuple(read_qrels(_one(folder / "qrels", f"{split}.tsv")))
    return _dataset(corpus, folder.name, tuple(read_queries(folder)), qrels)


def _ms_marco_passages(folder: Path, corpus: Path, split: str) -> Dataset:
    queries = _tsv_queries(_one(folder, f"queries.{split}*.tsv"))
    return _dataset(
        corpus, folder.name, queries, tuple(read_qrels(_one(folder, f"qrels.{split}*.tsv")))
    )


def _ms_marco_documents(folder: Path, corpus: Path, split: str) -> Dataset:
    queries = _tsv_queries(_one(folder, f"msmarco-doc{split}-queries.tsv"))
    qrels = tuple(read_qrels(_one(folder, f"msmarco-doc{split}-qrels.tsv")))
    return _dataset(corpus, folder.name, queries, qrels)


def _dpr(folder: Path, corpus: Path, split: str) -> Dataset:
    path = _one(folder, f"*{split}*.json")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        queries = tuple(
            Query(str(number), entry["question"], tuple(entry["answers"]))
            for number, entry in enumerate(entries)
        )
        qrels = tuple(
            Qrel(str(number), str(passage.get("passage_id", passage.get("psg_id"))), 1)
            for number, entry in enumerate(entries)
            for passage in entry["positive_ctxs"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path}: this is not DPR's format ({type(error).__name__}: {error}); it should be a "
            'list of objects with "question", "answers" and "positive_ctxs".'
        ) from error
    return _dataset(corpus, folder.name, queries, qrels, keep=True)


def _from_ir_datasets(name: str) -> Dataset:
    try:
        import ir_datasets
    except ImportError as error:
        raise CorpusError(
            "ir_datasets is not installed; run: pip install 'pseudoquery[ir-datasets]'"
        ) from error
    try:
        found: Any = ir_datasets.load(name)
    except KeyError as error:
        raise CorpusError(f"ir_datasets has no dataset {name!r}; see ir-datasets.com.") from error
    for part, there in (
        ("documents", found.has_docs()),
        ("queries", found.has_queries()),
        ("judgements", found.has_qrels()),
    ):
        if not there:
            raise CorpusError(f"the ir_datasets dataset {name!r} has no {part}; choose another.")
    queries = tuple(Query(query.query_id, query.default_text()) for query in found.queries_iter())
    qrels = tuple(
        Qrel(qrel.query_id, qrel.doc_id, int(qrel.relevance)) for qrel in found.qrels_iter()
    )

    def documents() -> Iterator[Document]:
        for row in found.docs_iter():
            title = str(getattr(row, "title", "") or "")
            text = getattr(row, "text", None) or getattr(row, "body", None) or row.default_text()
            yield Document(row.doc_id, text, title, place=f"irds:{name}")

    return Dataset(name, "", documents, _judged(queries, qrels), qrels)


def _dataset(
    corpus: Path,
    name: str,
    queries: tuple[Query, ...],
    qrels: tuple[Qrel, ...],
    *,
    keep: bool = False,
) -> Dataset:
    """Put a collection together; `keep` queries without judgements if answers can judge them."""
    chosen = queries if keep else _judged(queries, qrels)
    if missing := {qrel.query_id for qrel in qrels} - {query.id for query in chosen}:
        raise CorpusError(
            f"{corpus.parent}: {len(missing)} judged queries have no text, the first is "
            f"{min(missing)!r}; the queries and judgements do not belong together."
        )
    return Dataset(name, str(corpus), lambda: read_documents(corpus), chosen, qrels)


def _judged(queries: tuple[Query, ...], qrels: tuple[Qrel, ...]) -> tuple[Query, ...]:
    judged = {qrel.query_id for qrel in qrels}
    return tuple(query for query in queries if query.id in judged)


def _tsv_queries(path: Path) -> tuple[Query, ...]:
    """Read lines of `id<TAB>text`."""
    queries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        id_, tab, text = line.partition("\t")
        if not (id_ and tab and text.strip()):
            raise CorpusError(
                f"{path} line {number}: a line should be an id, a tab and a question."
            )
        queries.append(Query(id_, text))
    return tuple(queries)


def _one(folder: Path, pattern: str) -> Path:
    """Find the one file of this name; several would be a guess."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        many = f"there are {len(found)} such files" if found else "there is no such file"
        raise CorpusError(f"{folder / pattern}: {many}; check the split's name.")
    return found[0]


_LOADERS: dict[str, Callable[[Path, Path, str], Dataset]] = {
    "corpus.jsonl": _beir,
    "corpus.jsonl.gz": _beir,
    "collection.tsv": _ms_marco_passages,
    "msmarco-docs.tsv": _ms_marco_documents,
    "psgs_w100.tsv": _dpr,
}
