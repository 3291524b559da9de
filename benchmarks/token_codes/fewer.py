"""Leave tokens out of the codes, or let one stand for several, and see what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from benchmarks.token_codes import codes
from benchmarks.token_codes.codes import Floats, normalise, signs
from benchmarks.token_codes.collection import Texts
from benchmarks.token_codes.judged import Judged, Row
from benchmarks.token_codes.learning import Training
from benchmarks.token_codes.ranking import Kept

DEPTH = 100
SHARES = (0.25, 0.5, 0.75)
"""parts of the training documents' tokens that are left out"""


def fewer_tokens(judged: Judged, training: Training) -> Iterator[Row]:
    """Ways to keep fewer tokens: what is lost, and what is saved."""
    code = codes.plain_signs(training.sample.shape[1])
    candidates = judged.candidates(DEPTH)
    yield judged.row(candidates, kept="none", bytes=0)
    for name, kept in masks(judged, training):
        yield judged.row(
            candidates,
            judged.scores(candidates, code, document_tokens=kept),
            kept=name,
            bytes=round(judged.tokens_a_document(kept) * code.bytes),
        )
    for name, factor, merge in (
        ("means of 2 neighbours", 2, merge_neighbours),
        ("means of 2 alike", 2, merge_alike),
        ("means of 4 alike", 4, merge_alike),
    ):
        merged = replace(code, document=merging(merge, factor, code.document))
        yield judged.row(
            candidates,
            judged.scores(candidates, merged),
            kept=name,
            bytes=round(judged.tokens_a_document() * code.bytes / factor),
        )


def masks(judged: Judged, training: Training) -> Iterator[tuple[str, Kept]]:
    """Yield ways to choose tokens, each with which tokens of the documents it keeps."""
    documents, regular = judged.documents, judged.regular
    yield "all", regular
    vocabulary = judged.collection.model.tokenizer.convert_ids_to_tokens(
        list(range(len(judged.collection.model.tokenizer)))
    )
    spoken = np.array([any(map(str.isalnum, token)) for token in vocabulary])
    meaningful = spoken & ~np.isin(vocabulary, list(ENGLISH_STOP_WORDS))
    yield "no punctuation", regular & spoken[documents.ids]
    yield "no punctuation, no stop words", regular & meaningful[documents.ids]
    generator = np.random.default_rng(0)
    chances = generator.random(len(regular), np.float32)
    for share in SHARES:
        yield f"{1 - share:.0%} at random", regular & (chances >= share)
    predictions = match_predictions(documents, training.direction)
    known = np.concatenate(
        [rates_by_id(texts, training.rates)[~np.isnan(rates)] for texts, rates in training.matches]
    )
    learnt = normalise(training.sample) @ training.direction
    for share in SHARES:
        least = np.quantile(known, share)
        yield f"{1 - share:.0%} by vocabulary", regular & (training.rates[documents.ids] > least)
        least = np.quantile(learnt, share)
        yield f"{1 - share:.0%} by direction", regular & (predictions > least)
    for agreement in (0.9, 0.8, 0.7):
        name = f"none that agrees in {agreement:.0%} of its signs with"
        alike_to_last, alike_to_any = repeats(documents, agreement)
        yield f"{name} the one before", regular & ~alike_to_last
        yield f"{name} any before", regular & ~alike_to_any


def rates_by_id(documents: Texts, rates: Floats) -> Floats:
    return rates[documents.ids]


def match_predictions(documents: Texts, direction: Floats) -> Floats:
    """(tokens,): how far each token lies in the direction of those that are matched."""
    return np.concatenate(
        [
            normalise(np.asarray(documents.tokens[documents.rows(row)], np.float32)) @ direction
            for row in range(len(documents))
        ]
    )


def repeats(documents: Texts, agreement: float) -> tuple[Kept, Kept]:
    """Say of each token whether the one before it, or any before it, has nearly its signs."""
    last, any_before = (np.zeros(len(documents.ids), np.bool_) for _ in range(2))
    for row in range(len(documents)):
        rows = documents.rows(row)
        bits = signs(np.asarray(documents.tokens[rows])).astype(np.float32)
        alike = np.tril(bits @ bits.T >= (2 * agreement - 1) * bits.shape[1], -1)
        any_before[rows] = alike.any(axis=1)
        last[rows][1:] = np.diagonal(alike, -1)
    return last, any_before


def merging(
    merge: Callable[[Floats, int], Floats], factor: int, code: codes.Map
) -> Callable[[Floats], Floats]:
    return lambda tokens: code(merge(normalise(tokens), factor))


def merge_neighbours(tokens: Floats, factor: int) -> Floats:
    """Let means stand for stretches of so many tokens."""
    starts = np.arange(0, len(tokens), factor)
    sums: Floats = np.add.reduceat(tokens, starts, axis=0)
    return sums


def merge_alike(tokens: Floats, factor: int) -> Floats:
    """Let means stand for groups of about so many tokens, found by Ward's method."""
    groups = -(-len(tokens) // factor)
    if groups == len(tokens):
        return tokens
    labels = fcluster(linkage(tokens, method="ward"), groups, criterion="maxclust") - 1
    sums = np.zeros((labels.max() + 1, tokens.shape[1]), np.float32)
    np.add.at(sums, labels, tokens)
    return sums
