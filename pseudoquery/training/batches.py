"""The batches of a training: rows of queries in, batches of token ids out.

All texts are tokenised once. A row is one document and one or more of the queries that it answers:
encoding the document is the cost, and one more query for it is nearly free. A batch is drawn when
it is needed, from the negatives in use, so that they can be exchanged while training runs.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
    """Training sets and their texts, tokenised; any number of trainings can share them."""

    training_sets: tuple[TrainingSet, ...]
    documents: tuple[tuple[Windowed, ...], ...]
    """For each training set, its documents in their order."""
    queries: tuple[tuple[Windowed, ...], ...]
    """For each training set, the queries of its examples in their order."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A document, and some of the queries that it answers."""

    set_position: int
    """Which of the training sets it is from."""
    positive: str
    """The id of the document."""
    examples: tuple[int, ...]
    """The positions of the queries among the examples of the training set."""


class RowQuery(NamedTuple):
    """A query of a batch."""

    column: int
    """Where its positive stands among the documents of the batch."""
    set_position: int
    example: int
    """Its position among the examples of its training set."""


def tokenise_sets(
    model: MultiVectorEncoder,
    training_sets: Sequence[TrainingSet],
    tokens: int | None = None,
    cache: Path | None = None,
) -> TokenisedSets:
    """Tokenise all texts of training sets; of a document, at most `tokens` tokens."""
    documents = [list(training_set.texts.values()) for training_set in training_sets]
    queries = [
        [example.query for example in training_set.examples] for training_set in training_sets
    ]
    return TokenisedSets(
        tuple(training_sets),
        tuple(tuple(tokenise(model, texts, "document", tokens, cache)) for texts in documents),
        tuple(tuple(tokenise(model, texts, "query", None, cache)) for texts in queries),
    )


def make_rows(
    training_sets: Sequence[TrainingSet], queries_per_document: int, seed: int
) -> list[TrainingRow]:
    """Put queries with the same positive together, at most so many to a row."""
    rows = []
    for set_position, training_set in enumerate(training_sets):
        chance = random.Random(f"{seed} {training_set.name}")  # noqa: S311
        answered: dict[str, list[int]] = defaultdict(list)
        for position, example in enumerate(training_set.examples):
            answered[chance.choice(example.positives)].append(position)
        for positive, positions in answered.items():
            chance.shuffle(positions)
            for start in range(0, len(positions), queries_per_document):
                group = tuple(positions[start : start + queries_per_document])
                rows.append(TrainingRow(set_position, positive, group))
    return rows


def make_blocks(
    rows: Sequence[TrainingRow],
    training_set: TrainingSet,
    negatives: Negatives,
    size: int,
    seed: int,
) -> list[list[int]]:
    """Group rows of one training set whose documents are mistaken for each other, by row position.

    A batch of such blocks is full of hard negatives that cost nothing, as they are encoded anyway.
    Every row is in a block; where too few are alike, any others fill it up.
    """
    chance = random.Random(f"{seed} {training_set.name}")  # noqa: S311
    shuffled = chance.sample(range(len(rows)), len(rows))
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row in shuffled:
        rows_of[rows[row].positive].append(row)
    blocks: list[list[int]] = []
    rest: list[int] = []
    used: set[int] = set()
    for first in shuffled:
        if first in used:
            continue
        block = [first]
        documents = {rows[first].positive}
        for member in block:  # it grows on the way: who is mistaken for the second comes next
            for id_ in _mistaken_documents(rows[member], training_set, negatives):
                free = [row for row in rows_of[id_] if row not in used]
                if len(block) < size and free and id_ not in documents:
                    block.append(free[0])
                    documents.add(id_)
        used.update(block)
        if len(block) == size:
            blocks.append(block)
        else:
            rest += block
    rest += chance.choices(shuffled, k=-len(rest) % size)
    return blocks + [rest[start : start + size] for start in range(0, len(rest), size)]


def _mistaken_documents(
    row: TrainingRow, training_set: TrainingSet, negatives: Negatives
) -> list[str]:
    """Return the negatives of a row's queries, those of most queries first."""
    counts = Counter(
        id_
        for example in row.examples
        for id_ in negatives.get(query_key(training_set, training_set.examples[example]), ())
    )
    return [id_ for id_, _ in counts.most_common() if id_ != row.positive]


@dataclass(frozen=True, slots=True)
class MissingNegatives:
    """How many negatives are missing, so that random documents are drawn instead."""

    queries: int
    """Queries without any negative."""
    unknown: int
    """Negatives that are not documents of their training set."""


class BatchMaker:
    """Turns row positions into a batch with the columns "query" and "documents".

    The documents are all positives, then all first negatives, and so on. A document is known by its
    position among those of all training sets. The label says which document each one is, which one
    is the positive of each query ("positives"), which others answer it too ("known"), and at which
    step of the training it was made ("step").
    """

    def __init__(
        self,
        tokenised: TokenisedSets,
        *,
        negatives: int,
        queries_per_document: int = 1,
        seed: int = 0,
        scores: Scores | None = None,
    ) -> None:
        self.tokenised = tokenised
        self.rows = make_rows(tokenised.training_sets, queries_per_document, seed)
        self._negatives_per_row = negatives
        self._seed = seed
        self._scores = scores
        self._negatives: Negatives = {}
        self._positions: list[dict[str, int]] = []
        start = 0
        for training_set in tokenised.training_sets:
            self._positions.append({id_: at for at, id_ in enumerate(training_set.texts, start)})
            start += len(training_set.texts)
        self._documents = [text for documents in tokenised.documents for text in documents]

    def use_negatives(self, negatives: Negatives) -> MissingNegatives:
        """Draw from these negatives from now on; return what they lack."""
        self._negatives = negatives
        mined = [
            (training_set, negatives.get(query_key(training_set, example), ()))
            for training_set in self.tokenised.training_sets
            for example in training_set.examples
        ]
        return MissingNegatives(
            sum(not ids for _, ids in mined),
            sum(id_ not in training_set.texts for training_set, ids in mined for id_ in ids),
        )

    def make_batch(self, row_positions: Sequence[int], step: int = 0) -> dict[str, Any]:
        """Make a batch of these rows; the same rows get other negatives at another step."""
        rows = [self.rows[position] for position in row_positions]
        batch = self._collate(rows, [self._draw_documents(row, step) for row in rows])
        batch["label"]["step"] = torch.tensor(step)
        return batch

    def _collate(
        self, rows: Sequence[TrainingRow], drawn: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """Pad the texts, and label them."""
        positions = [
            documents[rank] for rank in range(1 + self._negatives_per_row) for documents in drawn
        ]
        row_queries = [
            RowQuery(column, row.set_position, example)
            for column, row in enumerate(rows)
            for example in row.examples
        ]
        label = {
            "documents": torch.tensor(positions),
            "positives": torch.tensor([query.column for query in row_queries]),
            "known": self._known_positives(row_queries),
        }
        if self._scores is not None:
            label["teacher"] = self._teacher_scores(row_queries, positions)
        queries = collate(
            [self.tokenised.queries[query.set_position][query.example] for query in row_queries]
        )
        documents = collate([self._documents[position] for position in positions])
        return {
            **{f"query_{name}": value for name, value in queries.items()},
            **{f"documents_{name}": value for name, value in documents.items()},
            "label": label,
        }

    def _draw_documents(self, row: TrainingRow, step: int) -> list[int]:
        """Return the positions of the row's positive and of its negatives."""
        training_set = self.tokenised.training_sets[row.set_position]
        examples = [training_set.examples[example] for example in row.examples]
        mined = [self._negatives.get(query_key(training_set, example), ()) for example in examples]
        seed = f"{self._seed} {step}"
        negatives = draw_negatives(examples, mined, self._negatives_per_row, training_set, seed)
        return [self._positions[row.set_position][id_] for id_ in (row.positive, *negatives)]

    def _known_positives(self, row_queries: Sequence[RowQuery]) -> Tensor:
        """Return the positions of all that answer each query: (queries, most), padded with -1."""
        positions = [
            [
                self._positions[set_position][id_]
                for id_ in self.tokenised.training_sets[set_position].examples[example].positives
            ]
            for _, set_position, example in row_queries
        ]
        most = max(map(len, positions))
        return torch.tensor([known + [-1] * (most - len(known)) for known in positions])

    def _teacher_scores(self, row_queries: Sequence[RowQuery], positions: Sequence[int]) -> Tensor:
        """Return the teacher's scores: (queries, documents), minus infinity where it has none."""
        scores = torch.full((len(row_queries), len(positions)), -torch.inf)
        columns: dict[int, list[int]] = defaultdict(list)
        for column, position in enumerate(positions):
            columns[position].append(column)
        for row, (_, set_position, example) in enumerate(row_queries):
            training_set = self.tokenised.training_sets[set_position]
            key = query_key(training_set, training_set.examples[example])
            for id_, score in (self._scores or {}).get(key, {}).items():
                for column in columns.get(self._positions[set_position].get(id_, -1), ()):
                    scores[row, column] = score
        return scores
