"""Training examples: a query, a document that answers it, and some that do not.

Negatives come in files, one JSON object a line: {"query": id, "negatives": [document ids]}. Whoever
trains reads the newest file and whoever mines writes the next, so they need not be one program.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pseudoquery.answers import contains
from pseudoquery.datasets import Dataset
from pseudoquery.encoding import document_text
from pseudoquery.errors import CorpusError
from pseudoquery.segments import write_durably

Negatives = Mapping[str, Sequence[str]]
"""For each query's id, the ids of documents that look right and are wrong."""


@dataclass(frozen=True, slots=True)
class Example:
    """One query to learn from."""

    query_id: str
    query: str
    positives: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn from a dataset: its texts, and the queries that have a positive in them."""

    name: str
    texts: Mapping[str, str]
    """Each document's text, as it is encoded, by id."""
    examples: tuple[Example, ...]
    without_positive: int
    """Queries left out, because no document answers them."""


def lesson(dataset: Dataset) -> Lesson:
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
    return Lesson(dataset.name, texts, examples, len(dataset.queries) - len(examples))


def hard_negatives(
    example: Example, ranked: Iterable[str], texts: Mapping[str, str], most: int
) -> list[str]:
    """Keep the best-ranked documents that are neither known to be right nor contain the answer."""
    kept: list[str] = []
    for document in ranked:
        if len(kept) == most:
            break
        if document in example.positives:
            continue
        if example.answers and contains(texts[document], example.answers):
            continue
        kept.append(document)
    return kept


def write_negatives(negatives: Negatives, path: Path) -> None:
    """Write negatives so that a reader sees all of them or none."""
    lines = (
        json.dumps({"query": query, "negatives": list(own)}) for query, own in negatives.items()
    )
    write_durably(path, "".join(f"{line}\n" for line in lines).encode())


def read_negatives(path: Path) -> Negatives:
    """Read what `write_negatives` wrote."""
    negatives = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            negatives[str(row["query"])] = [str(document) for document in row["negatives"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f'{path} line {number}: expected {{"query": id, "negatives": [ids]}}.'
            ) from error
    return negatives


def draw(
    example: Example, negatives: Sequence[str], count: int, lesson: Lesson, seed: str
) -> tuple[str, list[str]]:
    """Choose a positive and `count` negatives, the same ones for the same seed.

    Where too few negatives were mined, random documents take their place.
    """
    chance = random.Random(f"{seed} {lesson.name} {example.query_id}")  # noqa: S311
    positive = chance.choice(example.positives)
    known = [document for document in negatives if document in lesson.texts]
    drawn = chance.sample(known, min(count, len(known)))
    everything = list(lesson.texts)
    while len(drawn) < count:
        document = chance.choice(everything)
        if document not in example.positives or len(everything) <= len(example.positives):
            drawn.append(document)
    return positive, drawn
