"""The small immutable records that every other module speaks in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Document:
    """One text that can be found.

    Examples:
        >>> Document("bees", "Bees keep warm by trembling.", metadata={"year": 2019}).id
        'bees'
    """

    id: str
    """A non-empty string, unique in the index. Adding a document with a known id replaces the
    old one."""
    text: str
    """What is encoded, searched and shown."""
    title: str = ""
    """Encoded before the text, and searched by BM25 too."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Anything else, as plain JSON values; filters compare it."""
    origin: str = field(default="", compare=False)
    """Where the document was read, such as "docs.jsonl line 12". It appears in messages, and
    never changes a search."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question of a test collection."""

    id: str
    """The question's id in the collection."""
    text: str
    """The question."""
    answers: tuple[str, ...] = ()
    """The answer strings, if they are known; a document that contains one counts as right."""


class Qrel(NamedTuple):
    """One judgement of a test collection: how well a document answers a question."""

    query_id: str
    document_id: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of an answer."""

    id: str
    """The document's id."""
    score: float
    """The higher, the better. Scores of different modes can't be compared."""
    title: str
    """The document's title."""
    text: str
    """The document's text."""
    metadata: Mapping[str, Any]
    """The document's metadata."""
    weights: tuple[float, ...] = ()
    """How much each of the document's pseudo queries counts for the question; the weights add up
    to 1. Empty in a BM25 search."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best documents for one question."""

    query: str
    """The question."""
    hits: tuple[Hit, ...]
    """The documents, best first."""
    certified: bool
    """Whether the hits are proven to be the exact best of the whole index."""
    candidates: int
    """How many documents were scored exactly."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document's text: `text[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """One pseudo query of a document, and how it matches a question."""

    weight: float
    """How much it counts for the question, 0 to 1."""
    similarity: float
    """Its dot product with the question, before scaling."""
    spans: tuple[Span, ...]
    """The stretches of the text that it was made of."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document matches a question."""

    query: str
    """The question."""
    document: Document
    """The document."""
    score: float
    """The document's score for the question."""
    pseudo_queries: tuple[PseudoQuery, ...]
    """The document's pseudo queries, the one that counts most first."""
    passage: Span | None = None
    """The sentence that is nearest to the question, if there is one."""


@dataclass(frozen=True, slots=True)
class Added:
    """How many documents an `add` has added, updated and left alone."""

    added: int = 0
    """New documents."""
    updated: int = 0
    """Documents that replaced another one with the same id."""
    unchanged: int = 0
    """Documents that were already there, exactly as given."""
    cut: int = 0
    """Documents of which only the beginning was encoded, with `long="truncate"`."""

    @property
    def total(self) -> int:
        """How many documents were given."""
        return self.added + self.updated + self.unchanged

    def __add__(self, other: Added) -> Added:
        return Added(
            self.added + other.added,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.cut + other.cut,
        )
