"""A collection with questions to judge by, and what the first step says of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.token_codes.codes import Code, Floats
from benchmarks.token_codes.collection import Collection, Questions, Texts
from benchmarks.token_codes.ranking import (
    Kept,
    Positions,
    average_matches,
    best,
    first_step,
    measure,
    name_of_measure,
    rank_again,
    stretch,
    token_matches,
)
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.search.bm25 import rank_by_words

Row = dict[str, Any]
DIGITS = 31
"""The product rounds a question's numbers to integers up to this."""
FIRST_STEP = np.float32(0.2)
"""The share of the first step's score where it is mixed with that of the tokens."""
VOCABULARY = 40_000
"""More than there are ids in a BERT vocabulary."""


@dataclass(frozen=True)
class Judged:
    """The questions of one split, asked of the whole corpus."""

    collection: Collection
    split: str
    most: int
    """questions, sampled"""

    @property
    def name(self) -> str:
        """The name of the collection."""
        return self.collection.name

    @property
    def documents(self) -> Texts:
        """The whole corpus."""
        return self.collection.documents

    @cached_property
    def questions(self) -> Questions:
        """The sampled questions of the split."""
        return self.collection.questions(self.split, self.most)

    @cached_property
    def first(self) -> Floats:
        """(questions, documents): the first step's scores."""
        settings = pooling_of(self.collection.model).representation
        return first_step(self.documents, self.questions.encoded, settings)

    @cached_property
    def words(self) -> Floats:
        """(questions, documents): BM25's scores, as the product computes them."""
        scores = np.zeros((len(self.questions.texts), len(self.documents)), np.float32)
        rankings = rank_by_words(
            self.collection.contents, self.questions.texts, len(self.documents)
        )
        for row, ranking in enumerate(rankings):
            for position, score in ranking:
                scores[row, position] = score
        return scores

    @cached_property
    def regular(self) -> Kept:
        """The documents' tokens without those that the tokenizer adds."""
        return ~self.documents.special

    @cached_property
    def regular_weights(self) -> Floats:
        """The questions' tokens: one for each, zero for those that the tokenizer adds."""
        return (~self.questions.encoded.special).astype(np.float32)

    def candidates(self, depth: int) -> Positions:
        """Return the first step's best documents, best first."""
        return best(self.first, min(depth, len(self.documents)))

    def matches(self, candidates: Positions, code: Code, **changes: Any) -> Floats:
        """Match each question token with candidates as the product does, or with changes to that.

        (question tokens, candidates)
        """
        settings: dict[str, Any] = {"document_tokens": self.regular, "digits": DIGITS, **changes}
        return token_matches(self.documents, self.questions.encoded, candidates, code, **settings)

    def average(self, matches: Floats, weights: Floats | None = None) -> Floats:
        """(question tokens, candidates) -> (questions, candidates): the candidates' scores."""
        weights = self.regular_weights if weights is None else weights
        return average_matches(matches, self.questions.encoded, weights)

    def scores(self, candidates: Positions, code: Code, **changes: Any) -> Floats:
        """(questions, candidates): scores as the product gives them, or with changes to that."""
        return self.average(self.matches(candidates, code, **changes))

    def row(self, candidates: Positions, scores: Floats | None = None, **columns: Any) -> Row:
        """Judge the order of candidates by scores, also with the first step's score mixed in.

        Without scores, judge the order in which the candidates are.
        """
        row = {
            "collection": self.name,
            "split": self.split,
            "questions": len(self.questions.texts),
            **columns,
        }
        name = name_of_measure(self.name)
        if scores is None:
            return {**row, name: measure(self.name, candidates, self.questions.relevant)}
        first = np.take_along_axis(self.first, candidates, axis=1)
        mixed = (1 - FIRST_STEP) * stretch(scores) + FIRST_STEP * stretch(first)
        for label, values in ((name, scores), (f"{name} with the first step", mixed)):
            ranked = rank_again(candidates, np.nan_to_num(values, nan=-np.inf))
            row[label] = measure(self.name, ranked, self.questions.relevant)
        return row

    def tokens_a_document(self, kept: Kept | None = None) -> float:
        """Count the tokens that a document keeps on average."""
        return float((self.regular if kept is None else kept).sum()) / len(self.documents)


def inverse_document_frequencies(documents: Texts) -> Floats:
    """(vocabulary,): how rare each id of the vocabulary is."""
    pairs = np.unique(documents.owners * VOCABULARY + documents.ids)
    frequencies: NDArray[np.int64] = np.bincount(pairs % VOCABULARY, minlength=VOCABULARY)
    rarity = np.log((len(documents) + 1) / (frequencies + 0.5))
    return np.maximum(rarity, 0).astype(np.float32)
