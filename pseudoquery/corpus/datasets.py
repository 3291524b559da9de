"""Load test collections: documents, queries and judgements, in the usual formats.

FOLDER with corpus.jsonl           BEIR: queries.jsonl and qrels/SPLIT.tsv beside it
FOLDER with corpus.parquet         the same in Parquet: queries.parquet and qrels/SPLIT.parquet
FOLDER with collection.tsv         MS MARCO passages: queries.SPLIT.tsv, qrels.SPLIT.tsv
FOLDER with msmarco-docs.tsv       MS MARCO documents: msmarco-docSPLIT-queries.tsv, -qrels.tsv
FOLDER with psgs_w100.tsv          DPR: a *SPLIT*.json of questions with answers and passages, or
                                   else a *SPLIT*.csv (nq-test.qa.csv) of questions with answers
irds:ID                            any dataset of ir_datasets (an extra)

Each file may be gzipped: NAME.gz.
"""

from __future__ import annotations

import ast
import glob
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pseudoquery.corpus.documents import read_documents, read_qrels, read_queries
from pseudoquery.corpus.formats import read_quoted_tsv
from pseudoquery.corpus.huggingface import read_parquet
from pseudoquery.corpus.lines import find_file, read_lines
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

BUNDLED = ("squad-dev",)
"""Test collections that are part of the package."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A test collection: documents to search, queries, and judgements of their answers."""

    name: str
    """The name of its folder, or its ir_datasets id."""
    source: str
    """The file of the documents, as `pseudoquery index` takes it; "" if they are not in a file."""
    documents: Callable[[], Iterator[Document]]
    """Streams the documents; call it again to read them again."""
    queries: tuple[Query, ...]
    """The queries that have a judgement in this split, or answers to look for."""
    qrels: tuple[Qrel, ...]
    """The judgements of this split."""


def load_dataset(name: str, split: str) -> Dataset:
    """Load a split of a test collection: a folder, a bundled name, or irds: and an id.

    Examples:
        >>> dataset = load_dataset("squad-dev", "dev")
        >>> len(dataset.queries), dataset.queries[0].text
        (1000, 'When did the 1973 oil crisis begin?')
    """
    if name.startswith("irds:"):
        return _load_ir_dataset(name.removeprefix("irds:"))
    if not split or split != glob.escape(split) or Path(split).name != split:
        raise CorpusError(f"{split!r} is not the name of a split; give a name such as dev or test.")
    folder = Path(str(files("pseudoquery") / "data" / name)) if name in BUNDLED else Path(name)
    for marker, loader in _LOADERS.items():
        if corpus := find_file(folder, marker):
            return loader(folder, corpus, split)
    raise CorpusError(
        f"{name} is not a test collection; give a folder with one of {', '.join(_LOADERS)}, "
        f"irds: and an ir_datasets id, or {', '.join(BUNDLED)}."
    )


def _load_beir(folder: Path, corpus: Path, split: str) -> Dataset:
    qrels = tuple(read_qrels(_find_split_file(folder / "qrels", f"{split}.tsv")))
    return _make_dataset(corpus, tuple(read_queries(folder)), qrels)


def _load_parquet(folder: Path, corpus: Path, split: str) -> Dataset:
    path = _find_split_file(folder / "qrels", f"{split}.parquet")
    qrels = []
    for origin, row in read_parquet(path):
        try:
            qrels.append(Qrel(str(row["query-id"]), str(row["corpus-id"]), int(row["score"])))
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(
                f"{origin}: a judgement should have the columns query-id, corpus-id and score; "
                f"this one has {row!r:.80}."
            ) from error
    return _make_dataset(corpus, tuple(read_queries(folder)), tuple(qrels))


def _load_ms_marco_passages(folder: Path, corpus: Path, split: str) -> Dataset:
    queries = _read_tsv_queries(_find_split_file(folder, f"queries.{split}*.tsv"))
    return _make_dataset(
        corpus, queries, tuple(read_qrels(_find_split_file(folder, f"qrels.{split}*.tsv")))
    )


def _load_ms_marco_documents(folder: Path, corpus: Path, split: str) -> Dataset:
    queries = _read_tsv_queries(_find_split_file(folder, f"msmarco-doc{split}-queries.tsv"))
    qrels = tuple(read_qrels(_find_split_file(folder, f"msmarco-doc{split}-qrels.tsv")))
    return _make_dataset(corpus, queries, qrels)


def _load_dpr(folder: Path, corpus: Path, split: str) -> Dataset:
    # If both files exist, the JSON file wins: it also has judgements.
    path = _find_split_file(folder, f"*{split}*.json", f"*{split}*.csv")
    judged = path.name.removesuffix(".gz").endswith(".json")
    queries, qrels = _read_dpr_questions(path) if judged else (_read_dpr_answers(path), ())
    dataset = _make_dataset(corpus, queries, qrels, by_answers=True)
    return replace(dataset, documents=lambda: _read_dpr_passages(corpus))


def _read_dpr_questions(path: Path) -> tuple[tuple[Query, ...], tuple[Qrel, ...]]:
    """Read questions with their answers and the passages that contain an answer."""
    text = "\n".join(line for _, line in read_lines(path))
    origin = str(path)
    queries: list[Query] = []
    qrels: list[Qrel] = []
    try:
        for number, entry in enumerate(_check_list(json.loads(text), object)):
            origin = f"{path} entry {number}"
            (question,) = _check_list([entry["question"]], str)
            queries.append(Query(str(number), question, tuple(_check_list(entry["answers"], str))))
            passages = _check_list(entry["positive_ctxs"], dict)
            ids = [
                passage["passage_id" if "passage_id" in passage else "psg_id"]
                for passage in passages
            ]
            qrels += (Qrel(str(number), str(id_), 1) for id_ in _check_list(ids, str | int))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorpusError(
            f"{origin}: this is not DPR's format ({type(error).__name__}: {error}); it should be a "
            'list of objects with "question", "answers" and "positive_ctxs".'
        ) from error
    return tuple(queries), tuple(qrels)


def _read_dpr_answers(path: Path) -> tuple[Query, ...]:
    """Read rows of a question and its answers, which are written as a Python list."""
    queries = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lone backslash in an answer: the user can't change it
        for number, (origin, row) in enumerate(read_quoted_tsv(path)):
            try:
                question, answers = row
                strings = _check_list(ast.literal_eval(answers), str)
            # A list that is nested too deeply exhausts the parser's memory.
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
                raise CorpusError(
                    f"{origin}: this is not DPR's format; a row should be a question, a tab and a "
                    "list of answers such as ['Nile', 'the Nile']."
                ) from error
            queries.append(Query(str(number), question, tuple(strings)))
    return tuple(queries)


def _read_dpr_passages(path: Path) -> Iterator[Document]:
    """Read DPR's passages: tab-separated fields, quoted as in a CSV file."""
    for origin, row in read_quoted_tsv(path):
        if list(row) == ["id", "text", "title"]:
            continue
        if len(row) != 3:
            raise CorpusError(
                f"{origin}: a passage should have an id, a text and a title: {row!r:.80}."
            )
        yield Document(row[0], row[1], row[2], origin=origin)


def _check_list(values: Any, kind: Any) -> list[Any]:
    """Return a list, or raise unless it is a list and all its items have this type."""
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{values!r:.80} is of another type")
    return values


def _load_ir_dataset(name: str) -> Dataset:
    try:
        import ir_datasets
    except ImportError as error:
        raise CorpusError(
            "ir_datasets is not installed; run: pip install 'pseudoquery[ir-datasets]'"
        ) from error
    try:
        source: Any = ir_datasets.load(name)
    except KeyError as error:
        raise CorpusError(f"ir_datasets has no dataset {name!r}; see ir-datasets.com.") from error
    for part, exists in (
        ("documents", source.has_docs()),
        ("queries", source.has_queries()),
        ("judgements", source.has_qrels()),
    ):
        if not exists:
            raise CorpusError(f"the ir_datasets dataset {name!r} has no {part}; choose another.")
    queries = tuple(Query(query.query_id, query.default_text()) for query in source.queries_iter())
    qrels = tuple(
        Qrel(qrel.query_id, qrel.doc_id, int(qrel.relevance)) for qrel in source.qrels_iter()
    )

    def documents() -> Iterator[Document]:
        for row in source.docs_iter():
            title = str(getattr(row, "title", "") or "")
            text = getattr(row, "text", None) or getattr(row, "body", None) or row.default_text()
            yield Document(row.doc_id, text, title, origin=f"irds:{name}")

    judged = {qrel.query_id for qrel in qrels}
    chosen = tuple(query for query in queries if query.id in judged)
    if not chosen:
        raise CorpusError(f"the ir_datasets dataset {name!r} judges no query; choose another.")
    return Dataset(name, "", documents, chosen, qrels)


def _make_dataset(
    corpus: Path,
    queries: tuple[Query, ...],
    qrels: tuple[Qrel, ...],
    *,
    by_answers: bool = False,
) -> Dataset:
    """Make a dataset of the queries that are judged or, if `by_answers`, have answers."""
    judged = {qrel.query_id for qrel in qrels}
    chosen = tuple(
        query for query in queries if query.id in judged or (by_answers and query.answers)
    )
    if not chosen:
        raise CorpusError(f"{corpus.parent}: this split has no judged queries; choose another.")
    wanted = judged | {query.id for query in chosen}
    if missing := wanted - {query.id for query in chosen if query.text.strip()}:
        raise CorpusError(
            f"{corpus.parent}: {len(missing)} judged queries have no text, for example "
            f"{min(missing)!r}; the queries and the judgements do not belong together."
        )
    # Absolute, because "." has no name.
    name = corpus.parent.absolute().name
    return Dataset(name, str(corpus), lambda: read_documents(corpus), chosen, qrels)


def _read_tsv_queries(path: Path) -> tuple[Query, ...]:
    """Read lines of `id<TAB>text`."""
    queries = []
    for origin, line in read_lines(path):
        if not line.strip():
            continue
        id_, tab, text = line.partition("\t")
        if not (id_ and tab and text.strip()):
            raise CorpusError(f"{origin}: a line should be an id, a tab and a question.")
        queries.append(Query(id_, text))
    return tuple(queries)


def _find_split_file(folder: Path, *patterns: str) -> Path:
    """Find the file of a split: the file of this name, or the only file that fits the pattern.

    The first pattern that any file fits decides. A file and its gzipped form count as one.
    """
    for pattern in patterns:
        if exact := find_file(folder, pattern.replace("*", "")):
            return exact
        matching = [*folder.glob(f"{pattern}.gz"), *folder.glob(pattern)]
        paths = list({path.name.removesuffix(".gz"): path for path in matching}.values())
        if len(paths) == 1:
            return paths[0]
        if paths:
            raise CorpusError(
                f"{folder / pattern}: {len(paths)} files fit; check the name of the split."
            )
    raise CorpusError(
        f"{folder / ' or '.join(patterns)}: there is no such file; check the name of the split."
    )


_LOADERS: dict[str, Callable[[Path, Path, str], Dataset]] = {
    "corpus.jsonl": _load_beir,
    "corpus.parquet": _load_parquet,
    "collection.tsv": _load_ms_marco_passages,
    "msmarco-docs.tsv": _load_ms_marco_documents,
    "psgs_w100.tsv": _load_dpr,
}
