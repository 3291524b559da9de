"""What a training goes through: rows of queries in, batches of token ids out.

All texts are tokenised once. A row is one document and one or more of the queries that it answers:
reading the document is the cost, and asking it once more is nearly free. A batch is drawn when it
is needed, from the negatives in force, so that they can be exchanged while training runs.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.token_cache import Windowed, tokenise
from pseudoquery.encoding.windowed_encoder import collate
from pseudoquery.training.examples import TrainingSet, query_key
from pseudoquery.training.negatives import Negatives, draw_negatives
from pseudoquery.training.teacher import Scores


@dataclass(frozen=True, slots=True)
class TokenisedSets:
    """Lessons and their texts, tokenised; it serves any number of trainings."""

    lessons: tuple[TrainingSet, ...]
    documents: tuple[tuple[Windowed, ...], ...]
    """For each lesson, in its order."""
    queries: tuple[tuple[Windowed, ...], ...]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A document, and some of the queries that it answers, by their places in the lesson."""

    lesson: int
    positive: str
    examples: tuple[int, ...]


def tokenise_sets(
    model: MultiVectorEncoder,
    lessons: Sequence[TrainingSet],
    tokens: int | None = None,
    cache: Path | None = None,
) -> TokenisedSets:
    """Tokenise all that will be read; of a document, at most `tokens` tokens."""
    return TokenisedSets(
        tuple(lessons),
        tuple(
            tuple(tokenise(model, list(own.texts.values()), "document", tokens, cache))
            for own in lessons
        ),
        tuple(
            tuple(tokenise(model, [one.query for one in own.examples], "query", None, cache))
            for own in lessons
        ),
    )


def make_rows(
    lessons: Sequence[TrainingSet], queries_per_document: int, seed: int
) -> list[TrainingRow]:
    """Put queries with the same positive together, at most so many to a row."""
    rows = []
    for number, own in enumerate(lessons):
        chance = random.Random(f"{seed} {own.name}")  # noqa: S311
        answered: dict[str, list[int]] = defaultdict(list)
        for place, example in enumerate(own.examples):
            answered[chance.choice(example.positives)].append(place)
        for positive, places in answered.items():
            chance.shuffle(places)
            for start in range(0, len(places), queries_per_document):
                group = tuple(places[start : start + queries_per_document])
                rows.append(TrainingRow(number, positive, group))
    return rows


def make_blocks(
    rows: Sequence[TrainingRow], own: TrainingSet, negatives: Negatives, size: int, seed: int
) -> list[list[int]]:
    """Put rows of one lesson together, by number, whose documents are mistaken for each other.

    A batch of such blocks is full of hard negatives that cost nothing, as they are read anyway.
    Every row is in a block; where too few are alike, any others fill it up.
    """
    chance = random.Random(f"{seed} {own.name}")  # noqa: S311
    numbers = chance.sample(range(len(rows)), len(rows))
    waiting: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        waiting[rows[number].positive].append(number)
    blocks: list[list[int]] = []
    alone: list[int] = []
    taken: set[int] = set()
    for first in numbers:
        if first in taken:
            continue
        block = [first]
        documents = {rows[first].positive}
        for member in block:  # it grows on the way: who is mistaken for the second comes next
            for id_ in _mistaken(rows[member], own, negatives):
                free = [number for number in waiting[id_] if number not in taken]
                if len(block) < size and free and id_ not in documents:
                    block.append(free[0])
                    documents.add(id_)
        taken.update(block)
        if len(block) == size:
            blocks.append(block)
        else:
            alone += block
    alone += chance.choices(numbers, k=-len(alone) % size)
    return blocks + [alone[start : start + size] for start in range(0, len(alone), size)]


def _mistaken(row: TrainingRow, own: TrainingSet, negatives: Negatives) -> list[str]:
    """Return the negatives of a row's queries, those of most queries first."""
    count = Counter(
        id_
        for place in row.examples
        for id_ in negatives.get(query_key(own, own.examples[place]), ())
    )
    return [id_ for id_, _ in count.most_common() if id_ != row.positive]


@dataclass(frozen=True, slots=True)
class MissingNegatives:
    """What negatives lack, so that random documents have to take their place."""

    queries: int
    """Queries without any."""
    unknown: int
    """Negatives that are no documents of their lesson."""


class BatchMaker:
    """Turns row numbers into a batch with the columns "query" and "documents".

    The documents are all positives, then all first negatives, and so on. The label says which
    document of the whole course each one is, and which of them answer which query.
    """

    def __init__(
        self,
        material: TokenisedSets,
        *,
        negatives: int,
        queries_per_document: int = 1,
        seed: int = 0,
        scores: Scores | None = None,
    ) -> None:
        self.material = material
        self.rows = make_rows(material.lessons, queries_per_document, seed)
        self._count = negatives
        self._seed = seed
        self._scores = scores
        self._negatives: Negatives = {}
        self._numbers: list[dict[str, int]] = []
        first = 0
        for own in material.lessons:
            self._numbers.append({id_: first + place for place, id_ in enumerate(own.texts)})
            first += len(own.texts)
        self._documents = [text for own in material.documents for text in own]

    def use(self, negatives: Negatives) -> MissingNegatives:
        """Draw from these negatives from now on; say what they lack."""
        self._negatives = negatives
        asked = [
            (own, negatives.get(query_key(own, example), ()))
            for own in self.material.lessons
            for example in own.examples
        ]
        return MissingNegatives(
            sum(not mined for _, mined in asked),
            sum(id_ not in own.texts for own, mined in asked for id_ in mined),
        )

    def batch(self, numbers: Sequence[int], step: int = 0) -> dict[str, Any]:
        """Make a batch of these rows; the same rows get other negatives at another step."""
        rows = [self.rows[number] for number in numbers]
        return self._collated(rows, [self._drawn(row, step) for row in rows])

    def _collated(
        self, rows: Sequence[TrainingRow], drawn: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """Pad the texts, and label them."""
        numbers = [own[column] for column in range(1 + self._count) for own in drawn]
        asked = [
            (column, row.lesson, place) for column, row in enumerate(rows) for place in row.examples
        ]
        label = {
            "documents": torch.tensor(numbers),
            "own": torch.tensor([column for column, *_ in asked]),
            "known": self._known(asked),
        }
        if self._scores is not None:
            label["teacher"] = self._taught(asked, numbers)
        queries = collate([self.material.queries[lesson][place] for _, lesson, place in asked])
        documents = collate([self._documents[number] for number in numbers])
        return {
            **{f"query_{name}": value for name, value in queries.items()},
            **{f"documents_{name}": value for name, value in documents.items()},
            "label": label,
        }

    def _drawn(self, row: TrainingRow, step: int) -> list[int]:
        """Return the numbers of the row's positive and its negatives."""
        own = self.material.lessons[row.lesson]
        examples = [own.examples[place] for place in row.examples]
        mined = [self._negatives.get(query_key(own, example), ()) for example in examples]
        negatives = draw_negatives(examples, mined, self._count, own, f"{self._seed} {step}")
        return [self._numbers[row.lesson][id_] for id_ in (row.positive, *negatives)]

    def _known(self, asked: Sequence[tuple[int, int, int]]) -> Tensor:
        """Return the numbers of all that answer each query: (queries, most), filled up with -1."""
        numbers = [
            [
                self._numbers[lesson][id_]
                for id_ in self.material.lessons[lesson].examples[place].positives
            ]
            for _, lesson, place in asked
        ]
        most = max(map(len, numbers))
        return torch.tensor([own + [-1] * (most - len(own)) for own in numbers])

    def _taught(self, asked: Sequence[tuple[int, int, int]], numbers: Sequence[int]) -> Tensor:
        """Return what the teacher gave: (queries, documents), minus infinity if nothing."""
        taught = torch.full((len(asked), len(numbers)), -torch.inf)
        columns: dict[int, list[int]] = defaultdict(list)
        for column, number in enumerate(numbers):
            columns[number].append(column)
        for row, (_, lesson, place) in enumerate(asked):
            own = self.material.lessons[lesson]
            for id_, score in (
                (self._scores or {}).get(query_key(own, own.examples[place]), {}).items()
            ):
                for column in columns.get(self._numbers[lesson].get(id_, -1), ()):
                    taught[row, column] = score
        return taught
