"""Rank documents by pseudo queries, then by tokens; and judge the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.token_codes.codes import Code, Floats
from benchmarks.token_codes.collection import Texts
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import document_score

Positions = NDArray[np.int64]
"""(questions, candidates): documents, best first; -1 where a question has fewer"""
Kept = NDArray[np.bool_]
"""(tokens,): which tokens are compared"""


def first_step(documents: Texts, questions: Texts, settings: Representation) -> Floats:
    """Score all documents by their pseudo queries: (questions, documents)."""
    counts = np.diff(documents.vector_offsets)
    most = max(int(counts.max()), 1)
    padded = np.zeros((len(documents), most, documents.vectors.shape[1]), np.float32)
    real = np.arange(most) < counts[:, None]
    padded[real] = documents.vectors
    vectors, missing = torch.from_numpy(padded), torch.from_numpy(~real)
    scores = np.empty((len(questions), len(documents)), np.float32)
    for start in range(0, len(questions), 16):
        asked = torch.from_numpy(questions.vectors[start : start + 16])
        for first in range(0, len(documents), 1024):
            part = slice(first, first + 1024)
            dots = settings.scale * torch.einsum("qd,bkd->qbk", asked, vectors[part])
            dots = dots.masked_fill(missing[part][None], -torch.inf)
            scores[start : start + 16, part] = document_score(dots[:, :, None], settings.score)
    return scores


def best(scores: Floats, depth: int) -> Positions:
    """Return the best documents of each question, best first; among equals, the first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth]


def rank_again(candidates: Positions, scores: Floats) -> Positions:
    """Put candidates into the order of their new scores."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(candidates, order, axis=1)


def stretch(scores: Floats) -> Floats:
    """Stretch each question's scores to 0..1; equal ones become 1, and none stays none."""
    scores = np.where(np.isneginf(scores), np.float32(np.nan), scores)
    low, high = (edge(scores, axis=1, keepdims=True) for edge in (np.nanmin, np.nanmax))
    stretched = (scores - low) / np.maximum(high - low, 1e-30)
    equal = np.where(np.isnan(scores), scores, 1)
    return np.where(high > low, stretched, equal).astype(np.float32)


def token_matches(
    documents: Texts,
    questions: Texts,
    candidates: Positions,
    code: Code,
    document_tokens: Kept | None = None,
    digits: int | None = None,
) -> Floats:
    """Find each question token's largest product with a token of each of the question's candidates.

    (question tokens, candidates): minus infinity for a document of no tokens. The question's
    numbers may be rounded to integers up to `digits`, with one step for all tokens of a question.
    """
    numbers = code.question(np.asarray(questions.tokens))
    steps = np.full(len(numbers), code.step or 1, np.float32)
    multiply = multiply_floats
    if digits is not None:
        numbers, question_steps = round_together(numbers, questions, digits)
        steps *= question_steps
        multiply = multiply_floats if code.step is None else multiply_signs
    lengths = np.diff(questions.offsets)
    matches = np.full((len(numbers), candidates.shape[1]), -np.inf, np.float32)
    for document, questions_of_it, slots in by_document(candidates, len(documents)):
        rows = documents.rows(document)
        tokens = np.asarray(documents.tokens[rows])
        if document_tokens is not None:
            tokens = tokens[document_tokens[rows]]
        if not len(tokens):
            continue
        counts = lengths[questions_of_it]
        skipped = questions.offsets[questions_of_it] - (np.cumsum(counts) - counts)
        lines = np.repeat(skipped, counts) + np.arange(counts.sum())
        columns = np.repeat(slots, counts)
        largest = multiply(numbers[lines], code.document(tokens))
        matches[lines, columns] = largest * steps[lines]
    return matches


def average_matches(matches: Floats, questions: Texts, weights: Floats) -> Floats:
    """(question tokens, candidates) -> (questions, candidates): means by the tokens' weights.

    A weight of zero leaves a token out.
    """
    asked = np.flatnonzero(weights > 0)
    owners = questions.owners[asked]
    totals = np.maximum(np.bincount(owners, weights[asked]), 1e-30)
    parts = (weights[asked] / totals[owners])[:, None] * matches[asked]
    scores = np.zeros((len(questions), matches.shape[1]), np.float32)
    np.add.at(scores, owners, parts.astype(np.float32))
    return scores


def round_together(numbers: Floats, questions: Texts, digits: int) -> tuple[Floats, Floats]:
    """Round to integers in [-digits, digits] with one step for each question; also each step.

    The step is set by tokens that stand for text; what is larger in others is cut.
    """
    regular, owners = ~questions.special, questions.owners
    largest = np.zeros(len(questions), np.float32)
    np.maximum.at(largest, owners[regular], np.abs(numbers[regular]).max(axis=1, initial=0))
    steps = (np.maximum(largest, 1e-30)[owners] / digits).astype(np.float32)
    return np.rint(numbers / steps[:, None]).clip(-digits, digits), steps


def multiply_floats(numbers: Floats, tokens: NDArray[Any]) -> Floats:
    """(numbers, dim), (tokens, dim) -> (numbers,): the largest of each one's products."""
    largest: Floats = (numbers @ tokens.astype(np.float32, copy=False).T).max(axis=1)
    return largest


def multiply_signs(numbers: Floats, tokens: NDArray[Any]) -> Floats:
    """Do the same for integers and signs, in 8 bits."""
    integers = torch.from_numpy(numbers.astype(np.int8))
    products = torch._int_mm(integers, torch.from_numpy(tokens).T)
    return products.amax(dim=1).numpy().astype(np.float32)


def by_document(candidates: Positions, documents: int) -> Any:
    """Yield each document with the questions that it is a candidate of, and where."""
    flat = candidates.ravel()
    order = np.argsort(flat, kind="stable")
    ends = np.searchsorted(flat[order], np.arange(documents + 1))
    for document in range(documents):
        places = order[ends[document] : ends[document + 1]]
        if len(places):
            yield document, places // candidates.shape[1], places % candidates.shape[1]


def mean_reciprocal_rank(ranked: Positions, relevant: Sequence[frozenset[int]]) -> Floats:
    """(questions,): one over the rank of the first relevant document among the best ten."""
    values = np.zeros(len(ranked), np.float32)
    for row, documents in enumerate(relevant):
        hits = np.flatnonzero(np.isin(ranked[row, :10], list(documents)))
        values[row] = 1 / (hits[0] + 1) if len(hits) else 0
    return values


def discounted_gain(ranked: Positions, relevant: Sequence[frozenset[int]]) -> Floats:
    """(questions,): nDCG@10 with judgements of relevant or not."""
    discounts = 1 / np.log2(np.arange(10) + 2)
    values = np.zeros(len(ranked), np.float32)
    for row, documents in enumerate(relevant):
        hits = np.isin(ranked[row, :10], list(documents))
        values[row] = discounts[: len(hits)][hits].sum() / discounts[: len(documents)].sum()
    return values


def measure(collection: str, ranked: Positions, relevant: Sequence[frozenset[int]]) -> float:
    """Judge by nDCG@10 where several documents may be relevant, else by MRR@10, in percent."""
    function = discounted_gain if name_of_measure(collection) == "nDCG@10" else mean_reciprocal_rank
    return round(100 * float(function(ranked, relevant).mean()), 2)


def name_of_measure(collection: str) -> str:
    return "nDCG@10" if collection in ("scifact", "medquad-pages") else "MRR@10"
