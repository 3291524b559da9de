"""What goes over the wire: requests and answers as JSON, apart from the library's own records."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pseudoquery.records import Answer, Document, Explanation
from pseudoquery.records import Span as SpanRecord
from pseudoquery.search.fusion import Fusion
from pseudoquery.search.settings import Mode, SearchSettings
from pseudoquery.service.document_map import DocumentMap, labels
from pseudoquery.service.document_map import Point as PointRecord

DEFAULTS = SearchSettings()
DEEPEST = 10_000
"""Documents that a request may have recalled or fused, at most."""
Metadata = dict[str, Any]
Depth = Annotated[int, Field(ge=1, le=DEEPEST)]
_QUESTION = "How do insects survive the cold?"
_BEES = {
    "id": "bees",
    "title": "Honey bees",
    "text": "In winter the bees keep warm by trembling in a ball around the queen.",
    "metadata": {"topic": "animals", "year": 2019},
}


def _with_example(*examples: dict[str, Any]) -> ConfigDict:
    """Show how it looks in the OpenAPI description; a misspelt key is refused."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples)})


class SearchRequest(BaseModel):
    """One question or several, and how to answer them."""

    model_config = _with_example(
        {"query": _QUESTION, "top": 3},
        {
            "query": [_QUESTION, "What does moving ice leave behind?"],
            "where": {"topic": ["animals", "earth"], "year": {">=": 2015}},
            "mode": "hybrid",
            "exact": True,
        },
    )
    query: Annotated[
        str | Annotated[list[str], Field(min_length=1)],
        Field(description="One question, or a list of them."),
    ]
    top: Annotated[int, Field(ge=1, description="How many documents for each question.")] = 10
    where: Annotated[
        Metadata,
        Field(
            description="Conditions on the metadata; all must hold: a value, a list of values, or "
            "an object of comparisons (=, !=, <, <=, >, >=)."
        ),
    ] = {}
    exact: Annotated[bool, Field(description="Search on until the answer is proven exact.")] = False
    mode: Annotated[Mode, Field(description="By meaning, by words, or both.")] = "dense"
    fusion: Annotated[Fusion, Field(description="How a hybrid search fuses its rankings.")] = (
        DEFAULTS.fusion
    )
    weight: Annotated[
        float,
        Field(ge=0, le=1, allow_inf_nan=False, description="Meaning's part in a weighted fusion."),
    ] = DEFAULTS.weight
    recall: Annotated[Depth, Field(description="Documents that the first step recalls.")] = (
        DEFAULTS.recall
    )
    fusion_depth: Annotated[Depth, Field(description="Documents of each ranking to fuse.")] = (
        DEFAULTS.fusion_depth
    )
    include_text: Annotated[
        bool, Field(description="Whether hits hold the documents' text; it may be long.")
    ] = True


class ExplainRequest(BaseModel):
    """A question, and the document that it is compared with."""

    model_config = _with_example({"query": _QUESTION, "id": "bees"})
    query: str
    id: str


class CompareRequest(BaseModel):
    """A question that is answered in three ways."""

    model_config = _with_example({"query": _QUESTION, "top": 3})
    query: str
    top: Annotated[int, Field(ge=1, description="How many documents for each way.")] = 10
    exact: Annotated[bool, Field(description="Search on until the answer is proven exact.")] = False
    mode: Annotated[
        Literal["dense", "hybrid"], Field(description="How the pseudo queries are searched.")
    ] = "dense"
    include_text: Annotated[
        bool, Field(description="Whether hits hold the documents' text; it may be long.")
    ] = True


class MapRequest(BaseModel):
    """A document and, if you like, a question to put on its map."""

    model_config = _with_example({"id": "bees", "query": _QUESTION})
    id: str
    query: str | None = None


class DocumentBody(BaseModel):
    """A document without its id, which is in the address; if it is here too, they must agree."""

    model_config = _with_example({name: _BEES[name] for name in ("title", "text", "metadata")})
    text: str
    title: str = ""
    metadata: Metadata = {}
    id: str | None = None


class DocumentAnswer(BaseModel):
    """A document."""

    model_config = _with_example(_BEES)
    id: str
    title: str
    text: str
    metadata: Metadata


class HitAnswer(BaseModel):
    """One document that was found."""

    id: str
    score: float | None
    title: str
    text: Annotated[str | None, Field(description="null if the request left it out.")]
    metadata: Metadata
    weights: Annotated[
        list[float],
        Field(description="How much each of the document's pseudo queries weighs for this query."),
    ]


class QueryAnswer(BaseModel):
    """The documents for one question, best first."""

    query: str
    hits: list[HitAnswer]
    certified: Annotated[
        bool, Field(description="Whether these are proven to be the exact best by the score.")
    ]
    candidates: Annotated[int, Field(description="How many documents were scored exactly.")]


class SearchAnswer(BaseModel):
    """An answer for each question, in their order."""

    model_config = _with_example(
        {
            "answers": [
                {
                    "query": _QUESTION,
                    "hits": [{**_BEES, "score": 6.1, "weights": [0.9, 0.1]}],
                    "certified": True,
                    "candidates": 3,
                }
            ]
        }
    )
    answers: list[QueryAnswer]


class Span(BaseModel):
    """A stretch of the text, from `start` up to `end`, counted in Unicode code points."""

    start: int
    end: int


class PseudoQueryAnswer(BaseModel):
    """One pseudo query: the passages it was made of, and its weight for the question."""

    weight: float
    similarity: float
    spans: list[Span]
    label: Annotated[
        str, Field(description="A few words that tell it from the document's other ones.")
    ]


class ExplainAnswer(BaseModel):
    """Why a document matches, the pseudo query that weighs most first."""

    model_config = _with_example(
        {
            "query": _QUESTION,
            "document": _BEES,
            "score": 6.1,
            "pseudo_queries": [
                {
                    "weight": 0.9,
                    "similarity": 0.31,
                    "spans": [{"start": 0, "end": 29}],
                    "label": "winter · bees · warm",
                }
            ],
            "passage": {"start": 0, "end": 69},
        }
    )
    query: str
    document: DocumentAnswer
    score: float | None
    pseudo_queries: list[PseudoQueryAnswer]
    passage: Annotated[
        Span | None, Field(description="The sentence that is nearest to the question.")
    ]


class CompareAnswer(BaseModel):
    """The documents that three ways of searching find for one question."""

    model_config = _with_example(
        {
            name: {
                "query": _QUESTION,
                "hits": [{**_BEES, "score": score, "weights": weights}],
                "certified": True,
                "candidates": 3,
            }
            for name, score, weights in (
                ("pseudo_queries", 6.1, [0.9, 0.1]),
                ("bm25", 1.4, []),
                ("one_vector", 0.3, []),
            )
        }
    )
    pseudo_queries: QueryAnswer
    bm25: Annotated[QueryAnswer, Field(description="By words alone.")]
    one_vector: Annotated[
        QueryAnswer,
        Field(
            description="By one vector for each document, the mean of its pseudo queries; the "
            "score is its dot product with the question's vector."
        ),
    ]


class Point(BaseModel):
    """A place on the map."""

    x: float
    y: float


class MappedPseudoQuery(BaseModel):
    """One pseudo query on the map of its document."""

    point: Point
    label: Annotated[str, Field(description="A few words that tell it from the others.")]
    spans: list[Span]
    weight: Annotated[float | None, Field(description="null if there is no question.")]


class MapAnswer(BaseModel):
    """A document's pseudo queries on a plane, those that weigh most for the question first."""

    model_config = _with_example(
        {
            "document": _BEES,
            "pseudo_queries": [
                {
                    "point": {"x": -0.2, "y": 0.1},
                    "label": "winter · bees · warm",
                    "spans": [{"start": 0, "end": 29}],
                    "weight": 0.9,
                }
            ],
            "query": {"x": 0.5, "y": 0.0},
            "variance": 0.8,
        }
    )
    document: DocumentAnswer
    pseudo_queries: list[MappedPseudoQuery]
    query: Annotated[Point | None, Field(description="null if there is no question.")]
    variance: Annotated[
        float, Field(description="The part of the vectors' variance that the plane shows.")
    ]


class WriteAnswer(BaseModel):
    """What a request changed; it is on disk."""

    model_config = _with_example({"added": 1, "updated": 0, "unchanged": 0, "cut": 0})
    added: int
    updated: int
    unchanged: int
    cut: Annotated[
        int, Field(description="Documents of which only the beginning is searched by meaning.")
    ]


class DeleteAnswer(BaseModel):
    """The id of the document that was deleted."""

    model_config = _with_example({"deleted": "bees"})
    deleted: str


class StateAnswer(BaseModel):
    """That all is well."""

    model_config = _with_example({"status": "ok"})
    status: str


class InfoAnswer(BaseModel):
    """Facts about the service and its index."""

    version: str
    index: dict[str, Any]
    limits: dict[str, int | float]


class ErrorFacts(BaseModel):
    """What went wrong: a word for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """Every error looks like this."""

    model_config = _with_example(
        {"error": {"code": "not_found", "message": "there is no document with the id 'bees'."}}
    )
    error: ErrorFacts


def document_answer(document: Document) -> DocumentAnswer:
    """Write a document."""
    return DocumentAnswer(
        id=document.id,
        title=document.title,
        text=document.text,
        metadata=dict(document.metadata),
    )


def query_answer(answer: Answer, include_text: bool) -> dict[str, Any]:
    """Write the hits for one question, as a QueryAnswer; making one would only take time."""
    hits = [
        {
            "id": hit.id,
            "score": _finite(hit.score),
            "title": hit.title,
            "text": hit.text if include_text else None,
            "metadata": hit.metadata,
            "weights": hit.weights,
        }
        for hit in answer.hits
    ]
    return {
        "query": answer.query,
        "hits": hits,
        "certified": answer.certified,
        "candidates": answer.candidates,
    }


def explain_answer(explanation: Explanation) -> ExplainAnswer:
    """Write an explanation."""
    found = explanation.pseudo_queries
    named = labels(explanation.document.text, [one.spans for one in found])
    pseudo_queries = [
        PseudoQueryAnswer(
            weight=one.weight,
            similarity=one.similarity,
            spans=[_span(span) for span in one.spans],
            label=label,
        )
        for one, label in zip(found, named, strict=True)
    ]
    return ExplainAnswer(
        query=explanation.query,
        document=document_answer(explanation.document),
        score=_finite(explanation.score),
        pseudo_queries=pseudo_queries,
        passage=_span(explanation.passage) if explanation.passage else None,
    )


def map_answer(found: DocumentMap) -> MapAnswer:
    """Write a map."""
    pseudo_queries = [
        MappedPseudoQuery(
            point=_point(one.point),
            label=one.label,
            spans=[_span(span) for span in one.spans],
            weight=one.weight,
        )
        for one in found.pseudo_queries
    ]
    return MapAnswer(
        document=document_answer(found.document),
        pseudo_queries=pseudo_queries,
        query=_point(found.query) if found.query else None,
        variance=found.variance,
    )


def _point(point: PointRecord) -> Point:
    return Point(x=point.x, y=point.y)


def _finite(score: float) -> float | None:
    """JSON has no minus infinity, the score of a document without vectors."""
    return score if math.isfinite(score) else None


def _span(span: SpanRecord) -> Span:
    return Span(start=span.start, end=span.end)
