"""A document's pseudo queries, and a question if there is one, as points on a plane."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import document_text, encode_queries, encode_texts
from pseudoquery.encoding.model import representation_of
from pseudoquery.method.scores import attention
from pseudoquery.records import Document, Span
from pseudoquery.search.explain import passages


@dataclass(frozen=True, slots=True)
class Point:
    """Where something stands on the plane."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class MappedPseudoQuery:
    """One pseudo query on the map."""

    point: Point
    label: str
    """A few words that tell it from the others."""
    spans: tuple[Span, ...]
    weight: float | None
    """For the question, if there is one."""


@dataclass(frozen=True, slots=True)
class DocumentMap:
    """A document's pseudo queries on a plane, those that weigh most for the question first."""

    document: Document
    pseudo_queries: tuple[MappedPseudoQuery, ...]
    query: Point | None
    variance: float
    """The part of the vectors' variance that the plane shows."""


def map_document(
    model: MultiVectorEncoder, document: Document, query: str | None, long: Any = "windows"
) -> DocumentMap:
    """Encode a document and a question, and lay their vectors out on a plane."""
    encoded = encode_texts(model, [document_text(document)[0]], "document", long)[0]
    count = len(encoded.vectors)
    asked = encode_queries(model, [query])[0] if query is not None else None
    everything = [encoded.vectors] if asked is None else [encoded.vectors, _one(asked)]
    coordinates, variance = plane(np.concatenate(everything))
    points = [Point(*row) for row in coordinates.tolist()]
    spans = passages(encoded, document)
    weights: list[float | None] = [None] * count
    if asked is not None and count:
        settings = representation_of(model)
        # In double precision and in this order, as `explain` does, so that the two agree.
        dots = settings.scale * torch.from_numpy(asked @ encoded.vectors.T).double()
        weights = attention(dots, settings.score).tolist()
    mapped = [
        MappedPseudoQuery(*one)
        for one in zip(points[:count], labels(document.text, spans), spans, weights, strict=True)
    ]
    return DocumentMap(
        document,
        tuple(sorted(mapped, key=lambda one: -(one.weight or 0.0))),
        points[count] if asked is not None else None,
        variance,
    )


def plane(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Project vectors on the plane that shows most of their variance (PCA), and say how much.

    (n, dim) -> (n, 2). An axis may point either way: here, so that the point that is furthest from
    the middle along it has a positive coordinate.
    """
    if not len(vectors):
        return np.zeros((0, 2)), 1.0
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64, keepdims=True)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = np.zeros((len(vectors), 2))
    axes = min(2, len(lengths))
    coordinates[:, :axes] = left[:, :axes] * lengths[:axes]
    furthest = coordinates[np.abs(coordinates).argmax(axis=0), (0, 1)]
    total = float((lengths**2).sum())
    shown = float((lengths[:2] ** 2).sum())
    return coordinates * np.where(furthest < 0, -1.0, 1.0), shown / total if total else 1.0


def _one(query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Let one point stand for a question, even if it has a vector for each of its tokens."""
    mean: NDArray[np.float32] = query.mean(axis=0, keepdims=True)
    return mean


WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
WORDS_IN_LABEL = 3
LONG_WORD = 8
"""Letters; a longer word is not more telling for it."""


def labels(text: str, spans: Sequence[Sequence[Span]]) -> list[str]:
    """Name each pseudo query, given its spans, by words that it has and the others have not.

    A word tells more the larger this pseudo query's part in its occurrences, the more often it
    occurs here, and the longer it is: the commonest words of a language are short.
    """
    found = _words(text, spans)
    everywhere: Counter[str] = sum(found, Counter())

    def label(words: Counter[str]) -> str:
        def telling(word: str) -> float:
            part = words[word] / everywhere[word]
            return part * math.log1p(words[word]) * min(len(word), LONG_WORD)

        best = sorted(words, key=telling, reverse=True)[:WORDS_IN_LABEL]
        return " · ".join(word for word in words if word in best)

    return [label(words) for words in found]


def _words(text: str, spans: Sequence[Sequence[Span]]) -> list[Counter[str]]:
    """Count each pseudo query's words, in the order of the text; its first letter's is the word."""
    owned = sorted((span.start, span.end, owner) for owner, own in enumerate(spans) for span in own)
    found: list[Counter[str]] = [Counter() for _ in spans]
    for match in WORD.finditer(text):
        place = bisect_right(owned, match.start(), key=lambda one: one[0]) - 1
        if place >= 0 and match.start() < owned[place][1]:
            found[owned[place][2]][match.group().casefold()] += 1
    return found
