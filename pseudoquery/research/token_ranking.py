"""Rank by the tokens of all documents, as an index with token codes does, for whole collections.

An index ranks a few documents for one query. Here all queries are compared with all documents, on
the model's device, so that every depth of a first step can be judged at once. The tokens of a query
are compared as they are; an index rounds them first, which moves a score in its third digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.token_cache import Windowed
from pseudoquery.encoding.windowed_encoder import batches_of_like_length, collate, encode_batch
from pseudoquery.encoding.windows import Task
from pseudoquery.method.maxsim import maxsim_scores
from pseudoquery.training.token_views import (
    TokenBatch,
    Vectors,
    find_special,
    handing_out_tokens,
    straight_through_signs,
    unit_tokens,
)
from pseudoquery.training.validation import DEPTH, Rankings, ValidationSet

Form = Literal["signs", "floats"]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """How the tokens of all queries and documents match."""

    tables: dict[Form, NDArray[np.float32]]
    """For each form of a document's tokens, MaxSim: (queries, documents)"""
    tokens: float
    """How many tokens a document has, on average."""


def score_tokens(model: MultiVectorEncoder, validation_set: ValidationSet) -> TokenScores:
    """Score all documents for all queries by the tokens of both, in each form."""
    queries = [
        (encode_tokens(model, [validation_set.queries[row] for row in rows], "query"), rows)
        for rows in batches_of_like_length(validation_set.queries, model.device)
    ]
    shape = len(validation_set.queries), len(validation_set.documents)
    tables: dict[Form, NDArray[np.float32]] = {
        "signs": np.empty(shape, dtype=np.float32),
        "floats": np.empty(shape, dtype=np.float32),
    }
    count = 0
    for columns in batches_of_like_length(validation_set.documents, model.device):
        texts = [validation_set.documents[column] for column in columns]
        floats, mask = encode_tokens(model, texts, "document")
        count += int(mask.sum())
        forms: dict[Form, Tensor] = {"floats": floats, "signs": straight_through_signs(floats)}
        for form, values in forms.items():
            for (asked, asked_mask), rows in queries:
                scores = maxsim_scores(asked, values, asked_mask, mask)
                tables[form][np.ix_(rows, columns)] = scores.cpu().numpy()
    return TokenScores(tables, count / max(shape[1], 1))


def encode_tokens(model: MultiVectorEncoder, texts: list[Windowed], task: Task) -> Vectors:
    """Encode texts in one pass: their tokens at length 1, and which of them stand for text."""
    with handing_out_tokens(model):
        values, mask = encode_batch(model, texts, task)
    special = find_special(collate(texts), pooling_of(model).special_ids)
    special = special[:, : values.shape[1]].to(values.device)
    return unit_tokens(TokenBatch(values, mask, special))


def rank_again(first: Rankings, table: NDArray[np.float32], candidates: int) -> Rankings:
    """Rank the best of a first step again by another score; what follows them stays in its order.

    With 0 candidates there is no first step: all documents are ranked by the score.
    """
    if not candidates:
        order = np.argsort(-table, axis=1, kind="stable")[:, :DEPTH]
        return Rankings(order, np.take_along_axis(table, order, axis=1), first.vectors)
    best = first.positions[:, :candidates]
    scores = np.take_along_axis(table, best, axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    positions, ranked = first.positions.copy(), np.full_like(first.scores, -np.inf)
    positions[:, :candidates] = np.take_along_axis(best, order, axis=1)
    ranked[:, :candidates] = np.take_along_axis(scores, order, axis=1)
    return Rankings(positions, ranked, first.vectors)


def bytes_per_document(vectors: float, tokens: float, dimension: int, form: str) -> float:
    """Return what an index stores of a document: vectors in 16 bits, and its tokens in a form."""
    per_token = {"none": 0.0, "signs": dimension / 8, "floats": 2.0 * dimension}[form]
    return 2.0 * dimension * vectors + per_token * tokens
