"""Immutable records: what goes into an index, and what comes out of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Document:
    """A text that an index can find, with an id, a title and metadata.

    Examples:
        >>> document = Document("bees", "Bees tremble to keep warm.", metadata={"year": 2019})
        >>> document.id, document.title, document.metadata["year"]
        ('bees', '', 2019)
    """

    id: str
    """A non-empty string, unique in the index. A document with a known id replaces the old one."""
    text: str
    """The text that is encoded, searched and shown."""
    title: str = ""
    """The title, which is encoded before the text, and searched by BM25 too."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Any other fields, as plain JSON values. Filters compare them."""
    origin: str = field(default="", compare=False)
    """The file and line that the document was read from, such as "docs.jsonl line 12". Messages
    show it; searches ignore it."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question of a test collection.

    Examples:
        >>> Query("q1", "How do bees survive the winter?", ("by trembling",)).answers
        ('by trembling',)
    """

    id: str
    """The question's id in the collection."""
    text: str
    """The question."""
    answers: tuple[str, ...] = ()
    """The answers, if they are known: a document that contains one of them counts as right."""


class Qrel(NamedTuple):
    """A judgement of a test collection: how well a document answers a question.

    Examples:
        >>> Qrel("q1", "bees", 1).relevance
        1
    """

    query_id: str
    """The question's id."""
    document_id: str
    """The document's id."""
    relevance: int
    """0 if the document does not answer the question; the higher, the better it does."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document of an answer, with its score."""

    id: str
    """The document's id."""
    score: float
    """How well the document matches; the higher, the better. Scores of different search modes can't
    be compared."""
    title: str
    """The document's title."""
    text: str
    """The document's text."""
    metadata: Mapping[str, Any]
    """The document's metadata."""
    weights: tuple[float, ...] = ()
    """The share of each of the document's pseudo queries in its score. The shares add up to 1. In a
    BM25 search there are none."""
    relevance: float | None = None
    """An estimate of how likely the document answers the question, 0 to 1. It means the same for
    every question. None where it is not known: without tokens, in a BM25 search, or for a model
    whose scores nobody has calibrated."""


RankedBy = Literal["tokens", "vectors", "words", "tokens and words", "vectors and words"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The best documents for one question, and whether they are proven to be the best.

    Examples:
        >>> hit = Hit("bees", 7.5, "", "Bees tremble to keep warm.", {}, (0.75, 0.25))
        >>> answer = Answer("What keeps bees warm?", (hit,), certified=True, candidates=12)
        >>> [hit.id for hit in answer.hits], answer.certified
        (['bees'], True)
    """

    query: str
    """The question."""
    hits: tuple[Hit, ...]
    """The documents, best first."""
    certified: bool
    """Whether no other document of the index can have a better score than these."""
    candidates: int
    """How many documents were scored exactly to find these."""
    ranked_by: RankedBy = "vectors"
    """What the scores compare: "tokens" (of the question and the document), "vectors" (of the
    question and the document's pseudo queries), "words" (BM25), or words with one of the others."""
    candidates_proven: bool = False
    """Whether the documents that were ranked by tokens are proven to be the best by vectors."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a document's text.

    Examples:
        >>> span = Span(0, 4)
        >>> "Bees tremble to keep warm."[span.start : span.end]
        'Bees'
    """

    start: int
    """The position of the first character."""
    end: int
    """The position after the last character."""


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """A pseudo query of a document: one of its vectors, which stands for questions it answers."""

    weight: float
    """The share of the pseudo query in the document's score, 0 to 1."""
    similarity: float
    """The dot product of the pseudo query with the question, before scaling."""
    spans: tuple[Span, ...]
    """The parts of the text that the pseudo query was made of."""


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of a question, and the words of a document that it matches best."""

    word: Span
    """The word, as a part of the question."""
    similarity: float
    """How well it matches: the mean, over the word's tokens, of the largest dot product."""
    spans: tuple[Span, ...]
    """The words that match, as parts of the document's text. There are none if the match is in the
    title."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document matches a question; `Index.explain` makes it."""

    query: str
    """The question."""
    document: Document
    """The document."""
    score: float
    """The document's score for the question, by its vectors."""
    pseudo_queries: tuple[PseudoQuery, ...]
    """The document's pseudo queries, the one with the largest weight first."""
    passage: Span | None = None
    """The sentence that matches the question best; None if the text has no sentence."""
    matches: tuple[WordMatch, ...] = ()
    """For each word of the question, the words of the document that it matches best; empty if the
    index stores no tokens."""
    token_score: float | None = None
    """The score of the document's tokens, by which an index that stores them ranks; None if it
    stores none."""


@dataclass(frozen=True, slots=True)
class Added:
    """How many documents `Index.add` has added, updated and left alone.

    Examples:
        >>> (Added(added=2, unchanged=1) + Added(updated=1)).total
        4
    """

    added: int = 0
    """New documents."""
    updated: int = 0
    """Documents that have replaced another one with the same id."""
    unchanged: int = 0
    """Documents that the index already had, exactly as given."""
    cut: int = 0
    """Documents of which only the beginning was encoded, because of `long="truncate"`."""

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
