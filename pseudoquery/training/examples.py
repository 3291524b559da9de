"""Training examples: a query, a document that answers it, and some that do not.

Negatives come in files, one JSON object a line: {"query": id, "negatives": [document ids]}. Whoever
trains reads the newest file and whoever mines writes the next, so they need not be one program.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.encoding.encode import document_text
from pseudoquery.errors import CorpusError
from pseudoquery.evaluation.answer_match import contains
from pseudoquery.storage.segments import write_durably

Negatives = Mapping[str, Sequence[str]]
"""For each query's key, the ids of documents that look right and are wrong."""
Scores = Mapping[str, Mapping[str, float]]
"""For each query's key, what a teacher gives some documents."""


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
    ids: tuple[str, ...]
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
    return Lesson(dataset.name, texts, tuple(texts), examples, len(dataset.queries) - len(examples))


def checksum(own: Lesson) -> str:
    """Hash all texts and examples of a lesson."""
    digest = hashlib.sha256()
    for part in (*own.texts.items(), *map(asdict, own.examples)):
        digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def query_key(own: Lesson, example: Example) -> str:
    """Name a query among those of all lessons."""
    return f"{own.name} {example.query_id}"


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
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = json.loads(line)
            negatives[str(row["query"])] = [str(document) for document in row["negatives"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f'{path} line {number}: expected {{"query": id, "negatives": [ids]}}.'
            ) from error
    return negatives


def read_scores(path: Path) -> Scores:
    """Read a teacher's scores: {"query": id, "scores": {document id: score}} a line."""
    scores = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = json.loads(line)
            scores[str(row["query"])] = {
                str(document): float(score) for document, score in row["scores"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(
                f'{path} line {number}: expected {{"query": id, "scores": {{id: number}}}}.'
            ) from error
    return scores


def write_scores(scores: Scores, path: Path) -> None:
    """Write a teacher's scores so that a reader sees all of them or none."""
    lines = (json.dumps({"query": query, "scores": dict(own)}) for query, own in scores.items())
    write_durably(path, "".join(f"{line}\n" for line in lines).encode())


def draw_negatives(
    examples: Sequence[Example],
    mined: Sequence[Sequence[str]],
    count: int,
    lesson: Lesson,
    seed: str,
) -> list[str]:
    """Choose `count` negatives for queries with the same positive, always the same for a seed.

    The queries take turns. Where too few negatives were mined, random documents take their place.
    """
    chance = random.Random(f"{seed} {lesson.name} {examples[0].query_id}")  # noqa: S311
    right = {document for example in examples for document in example.positives}
    usable = [[one for one in own if one in lesson.texts and one not in right] for own in mined]
    turns = [chance.sample(own, min(count, len(own))) for own in usable if own]
    chance.shuffle(turns)
    taken = dict.fromkeys(one for turn in zip_longest(*turns) for one in turn if one is not None)
    drawn = list(taken)[:count]
    while len(drawn) < count:
        document = chance.choice(lesson.ids)
        if document not in right or len(lesson.ids) <= len(right):
            drawn.append(document)
    return drawn


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} can't be read ({error}).") from error
