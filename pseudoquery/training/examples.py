"""Training examples: a query, a document that answers it, and some that do not.

Negatives come in files, one JSON object a line: {"query": id, "negatives": [document ids]}. The
program that trains reads the newest file, and another program may mine and write the next one.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Example:
    """A query to learn from."""

    query_id: str
    query: str
    positives: tuple[str, ...]
    """The ids of the documents that answer it."""
    answers: tuple[str, ...]
    """Answers in words: a document that contains one of them is never a negative."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """What to learn from a dataset: its texts, and the queries that have a positive in them."""

    name: str
    texts: Mapping[str, str]
    """Each document's text, as it is encoded, by id."""
    ids: tuple[str, ...]
    """The ids of the documents, in their order."""
    examples: tuple[Example, ...]
    without_positive: int
    """Queries left out, because no document answers them."""


def make_training_set(dataset: Dataset) -> TrainingSet:
    """Collect a dataset's texts and examples; a positive that is not in the corpus is an error."""
    texts = {document.id: document_text(document)[0] for document in dataset.documents()}
    positives: dict[str, list[str]] = defaultdict(list)
    for qrel in dataset.qrels:
        if qrel.relevance <= 0:
            continue
        if qrel.document_id not in texts:
            raise CorpusError(
                f"{dataset.name}: the query {qrel.query_id!r} is answered by the document "
                f"{qrel.document_id!r}, which is not in the corpus; mend the judgements."
            )
        positives[qrel.query_id].append(qrel.document_id)
    examples = tuple(
        Example(query.id, query.text, tuple(positives[query.id]), query.answers)
        for query in dataset.queries
        if positives[query.id]
    )
    if not examples:
        raise CorpusError(f"{dataset.name}: no query has a positive document to learn from.")
    return TrainingSet(
        dataset.name, texts, tuple(texts), examples, len(dataset.queries) - len(examples)
    )


def hash_training_set(training_set: TrainingSet) -> str:
    """Hash all texts and examples of a training set."""
    digest = hashlib.sha256()
    for part in (*training_set.texts.items(), *map(asdict, training_set.examples)):
        digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def query_key(training_set: TrainingSet, example: Example) -> str:
    """Name a query among those of all training sets."""
    return f"{training_set.name} {example.query_id}"


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file of JSON objects."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} can't be read ({error}).") from error
