"""What a training goes through: rows of queries in, batches of token ids out.

All texts are tokenised once. A batch is drawn anew from the negatives in force, so that they can
be exchanged while training runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pseudoquery.mine import negatives_key
from pseudoquery.triples import Lesson, Negatives, draw


class Course:
    """The collator of the trainer: row numbers become the columns "query" and "documents".

    The documents are all positives, then all first negatives, and so on; their label is which
    document of the whole course each one is.
    """

    valid_label_columns = ("label",)  # the trainer asks this of its collator

    def __init__(
        self, lessons: list[Lesson], tokenizer: Any, *, negatives: int, tokens: int, seed: int
    ) -> None:
        self.lessons = lessons
        self.rows = [
            (number, place)
            for number, own in enumerate(lessons)
            for place in range(len(own.examples))
        ]
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._count = negatives
        self._seed = seed
        self._negatives: Negatives = {}
        self._source = "none"
        self._numbers: list[dict[str, int]] = []
        self._documents: list[list[int]] = []
        for own in lessons:
            first = len(self._documents)
            self._numbers.append({id_: first + place for place, id_ in enumerate(own.texts)})
            self._documents.extend(self._token_ids(list(own.texts.values())))
        self._queries = [
            self._token_ids([example.query for example in own.examples]) for own in lessons
        ]

    def use(self, negatives: Negatives, source: str) -> None:
        """Draw from these negatives from now on; the name of their source seeds the draw."""
        self._negatives, self._source = negatives, source

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        """Collate rows into a batch."""
        queries, drawn = [], []
        for row in rows:
            number, place = self.rows[row["row"]]
            own = self.lessons[number]
            example = own.examples[place]
            mined = self._negatives.get(negatives_key(own, example), ())
            seed = f"{self._seed} {self._source}"
            positive, negatives = draw(example, mined, self._count, own, seed)
            queries.append(self._queries[number][place])
            drawn.append([self._numbers[number][id_] for id_ in (positive, *negatives)])
        numbers = [own[column] for column in range(1 + self._count) for own in drawn]
        return {
            **self._padded("query", queries),
            **self._padded("documents", [self._documents[number] for number in numbers]),
            "label": torch.tensor(numbers),
        }

    def _token_ids(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(texts, truncation=True, max_length=self._tokens)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _padded(self, column: str, ids: list[list[int]]) -> dict[str, Tensor]:
        padded = self._tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        return {f"{column}_{name}": value for name, value in padded.items()}
