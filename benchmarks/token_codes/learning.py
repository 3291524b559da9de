"""What is learnt of tokens from the collections that models are trained on, never from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.token_codes.codes import Floats, normalise, signs
from benchmarks.token_codes.collection import Collection, Texts
from benchmarks.token_codes.judged import VOCABULARY, Judged, inverse_document_frequencies
from benchmarks.token_codes.ranking import by_document

DEPTH = 10
"""A training question's candidates, in which its tokens look for their best match."""


@dataclass(frozen=True)
class Training:
    """The collections to learn from."""

    collections: tuple[Collection, ...]
    tokens: int = 60_000
    """how many are drawn, in all"""
    questions: int = 1500
    """how many of each collection are asked"""

    @cached_property
    def sample(self) -> Floats:
        """Tokens of documents that trainings may read, as many from each collection."""
        generator = np.random.default_rng(0)
        parts = []
        for collection in self.collections:
            documents = collection.documents
            training = np.isin(documents.owners, collection.training_documents)
            regular = np.flatnonzero(training & ~documents.special)
            share = min(self.tokens // len(self.collections), len(regular))
            chosen = np.sort(generator.choice(regular, share, replace=False))
            parts.append(np.asarray(documents.tokens[chosen], np.float32))
        return np.concatenate(parts)

    @cached_property
    def rarity(self) -> Floats:
        """(vocabulary,): how rare each id is, on average over the collections."""
        each = [
            inverse_document_frequencies(collection.documents) for collection in self.collections
        ]
        rarity: Floats = np.mean(each, axis=0, dtype=np.float32)
        return rarity

    @cached_property
    def matches(self) -> Sequence[tuple[Texts, Floats]]:
        """For each collection, how often a question's candidates match by this token.

        (tokens,): per question that the document is a candidate of; not a number if there is none.
        """
        counted = []
        for collection in self.collections:
            judged = Judged(collection, collection.splits[0], self.questions)
            counted.append((collection.documents, count_matches(judged)))
        return counted

    @cached_property
    def rates(self) -> Floats:
        """(vocabulary,): how often a token of this id is matched, smoothed towards the average."""
        totals, asked = np.zeros(VOCABULARY), np.zeros(VOCABULARY)
        for documents, rates in self.matches:
            known = ~np.isnan(rates)
            np.add.at(totals, documents.ids[known], rates[known])
            np.add.at(asked, documents.ids[known], 1)
        average = totals.sum() / asked.sum()
        smoothed: Floats = ((totals + 20 * average) / (asked + 20)).astype(np.float32)
        return smoothed

    @cached_property
    def direction(self) -> Floats:
        """(dim,): the direction in which matched tokens lie, by least squares."""
        gram, moments = np.zeros(()), np.zeros(())
        for documents, rates in self.matches:
            known = np.flatnonzero(~np.isnan(rates))
            for rows in np.array_split(known, max(1, len(known) // 50_000)):
                unit = normalise(np.asarray(documents.tokens[rows], np.float32))
                gram = gram + unit.T @ unit / len(known)
                moments = moments + unit.T @ rates[rows] / len(known)
        ridge = 1e-4 * np.trace(gram) * np.eye(len(gram))
        direction: Floats = np.linalg.solve(gram + ridge, moments).astype(np.float32)
        return direction


def count_matches(judged: Judged) -> Floats:
    """(tokens,): how often a token is the best match, per question asked of its document."""
    documents, questions = judged.documents, judged.questions.encoded
    asked = judged.regular_weights > 0
    numbers = normalise(np.asarray(questions.tokens))
    rates = np.full(len(documents.ids), np.nan, np.float32)
    candidates = judged.candidates(DEPTH)
    for document, questions_of_it, _ in by_document(candidates, len(documents)):
        rows = np.arange(len(documents.ids))[documents.rows(document)]
        rows = rows[~documents.special[rows]]
        if not len(rows):
            continue
        lines = np.concatenate([np.r_[questions.rows(row)] for row in questions_of_it])
        tokens = signs(np.asarray(documents.tokens[rows])).astype(np.float32)
        winners = (numbers[lines[asked[lines]]] @ tokens.T).argmax(axis=1)
        rates[rows] = np.bincount(winners, minlength=len(rows)) / len(questions_of_it)
    return rates
