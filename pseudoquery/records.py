"""The small immutable records that every other module speaks in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Document:
    """One text to be found, with an id of its own."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    origin: str = field(default="", compare=False)
    """Where it was read, such as "docs.jsonl line 12"; used in messages, never in search."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question of an evaluation set, with the answer strings if they are known."""

    id: str
    text: str
    answers: tuple[str, ...] = ()


class Qrel(NamedTuple):
    """One judgement: this document answers this query, to this degree."""

    query_id: str
    document_id: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of an answer."""

    id: str
    score: float
    title: str
    text: str
    metadata: Mapping[str, Any]
    weights: tuple[float, ...] = ()
    """a_j of the paper's Eq. 4: how much each of the document's vectors weighs for this query."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits for one query, best first, and whether they are proven to be the exact best."""

    query: str
    hits: tuple[Hit, ...]
    certified: bool
    candidates: int
    """How many documents were scored exactly."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document's text, as character offsets."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """One pseudo query of a document: the text it was made of, and its weight for a query."""

    weight: float
    similarity: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document matched: its pseudo queries in order of weight, the winning one first."""

    query: str
    document: Document
    score: float
    pseudo_queries: tuple[PseudoQuery, ...]
    passage: Span | None = None
    """The sentence whose own tokens, averaged, are nearest to the query."""


@dataclass(frozen=True, slots=True)
class Added:
    """What an `add` did, document by document."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    cut: int = 0
    """Documents of which only the beginning was encoded, because truncation was asked for."""

    @property
    def total(self) -> int:
        """How many documents were given."""
        return self.added + self.updated + self.unchanged
