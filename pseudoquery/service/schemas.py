"""The JSON of requests and answers, as OpenAPI describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pseudoquery.json_records import document_to_dict, explanation_to_dict
from pseudoquery.records import Explanation, RankedBy
from pseudoquery.search.fusion import Fusion
from pseudoquery.search.settings import Mode, RankBy, SearchSettings
from pseudoquery.service.document_map import DocumentMap
from pseudoquery.service.labels import labels

DEFAULTS = SearchSettings()
MAX_DEPTH = 10_000
"""How many documents a request may have recalled or fused."""
Metadata = dict[str, Any]
Depth = Annotated[int, Field(ge=1, le=MAX_DEPTH)]

# The examples are real: an index of three short documents, made with k=2, answers like this.
_QUESTION = "How do bees survive the winter?"
_BEES = {
    "id": "bees",
    "title": "Honey bees",
    "text": "In winter the bees keep warm by trembling in a ball around the queen.",
    "metadata": {"topic": "animals", "year": 2019},
}
_PSEUDO_QUERY = {
    "weight": 0.57,
    "spans": [
        {"start": 3, "end": 9},
        {"start": 14, "end": 18},
        {"start": 24, "end": 28},
        {"start": 47, "end": 51},
        {"start": 63, "end": 68},
    ],
    "label": "winter · bees · queen",
}


def _request(*examples: dict[str, Any]) -> ConfigDict:
    """Show examples in the OpenAPI description; refuse unknown keys and values of other types."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples)})


def _answer(example: dict[str, Any]) -> ConfigDict:
    """Show an example in the OpenAPI description; never send an unknown key."""
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})


def _answer_example(
    score: float, weights: list[float], candidates: int = 3, ranked_by: RankedBy = "vectors"
) -> dict[str, Any]:
    return {
        "query": _QUESTION,
        "hits": [{**_BEES, "score": score, "weights": weights}],
        "certified": True,
        "candidates": candidates,
        "ranked_by": ranked_by,
        "candidates_proven": True,
    }


class SearchRequest(BaseModel):
    """One or more questions, and how to search for their answers."""

    model_config = _request(
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
        Field(description="One question, or a list of questions."),
    ]
    top: Annotated[int, Field(ge=1, description="How many documents to find per question.")] = 10
    where: Annotated[
        Metadata,
        Field(
            description="Conditions on the metadata, all of which must hold. Each is a value, a "
            "list of values, or an object of comparisons (=, !=, <, <=, >, >=)."
        ),
    ] = {}
    exact: Annotated[
        bool, Field(description="Whether to search until the answer is proven exact.")
    ] = False
    mode: Annotated[
        Mode,
        Field(description="dense searches by meaning, bm25 by words, and hybrid by both."),
    ] = "dense"
    fusion: Annotated[Fusion, Field(description="How a hybrid search fuses its two rankings.")] = (
        DEFAULTS.fusion
    )
    weight: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="How much meaning counts in a weighted fusion; words count the rest.",
        ),
    ] = DEFAULTS.weight
    recall: Annotated[
        Depth, Field(description="How many documents the first step of the search recalls.")
    ] = DEFAULTS.recall
    rank_by: Annotated[
        RankBy,
        Field(
            description="Rank the best documents by the tokens that the index stores, or by their "
            "vectors; auto ranks by tokens if there are any."
        ),
    ] = DEFAULTS.rank_by
    token_depth: Annotated[
        Depth,
        Field(description="How many of the best documents by vectors are ranked by tokens."),
    ] = DEFAULTS.token_depth
    vector_share: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="How much the score of the vectors counts beside that of the tokens.",
        ),
    ] = DEFAULTS.vector_share
    fusion_depth: Annotated[
        Depth, Field(description="How many documents of each ranking a hybrid search fuses.")
    ] = DEFAULTS.fusion_depth
    min_relevance: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="Leave out hits whose relevance is below this.",
        ),
    ] = DEFAULTS.min_relevance
    include_text: Annotated[
        bool, Field(description="Whether hits hold the documents' text, which may be long.")
    ] = True


class ExplainRequest(BaseModel):
    """A question, and the document to compare it with."""

    model_config = _request({"query": _QUESTION, "id": "bees"})
    query: str
    id: str


class CompareRequest(BaseModel):
    """A question to answer in three ways."""

    model_config = _request({"query": _QUESTION, "top": 3})
    query: str
    top: Annotated[int, Field(ge=1, description="How many documents each way finds.")] = 10
    exact: Annotated[
        bool, Field(description="Whether to search until the answer is proven exact.")
    ] = False
    mode: Annotated[
        Literal["dense", "hybrid"],
        Field(description="How to search the pseudo queries: alone, or fused with BM25."),
    ] = "dense"
    include_text: Annotated[
        bool, Field(description="Whether hits hold the documents' text, which may be long.")
    ] = True


class MapRequest(BaseModel):
    """A document and, optionally, a question to show on its map."""

    model_config = _request({"id": "bees", "query": _QUESTION})
    id: str
    query: str | None = None


class DocumentBody(BaseModel):
    """A document. Its id is in the address; an id in the body must be the same."""

    model_config = _request({name: _BEES[name] for name in ("title", "text", "metadata")})
    text: str
    title: str = ""
    metadata: Metadata = {}
    id: str | None = None


class DocumentAnswer(BaseModel):
    """A document."""

    model_config = _answer(_BEES)
    id: str
    title: str
    text: str
    metadata: Metadata


class HitAnswer(BaseModel):
    """A document of an answer, with its score."""

    id: str
    score: float | None
    title: str
    text: Annotated[str | None, Field(description="null if `include_text` is false.")]
    metadata: Metadata
    weights: Annotated[
        list[float],
        Field(
            description="How much each of the document's pseudo queries counts for the question."
        ),
    ]
    relevance: Annotated[
        float | None,
        Field(
            description="An estimate of how likely the document answers the question, 0 to 1; null "
            "where it is not known."
        ),
    ]


class QueryAnswer(BaseModel):
    """The documents for one question, best first."""

    query: str
    hits: list[HitAnswer]
    certified: Annotated[
        bool, Field(description="Whether the hits are proven to be the exact best of the index.")
    ]
    candidates: Annotated[int, Field(description="How many documents were scored exactly.")]
    ranked_by: Annotated[
        RankedBy,
        Field(description="What the scores compare: tokens, vectors, words, or two of these."),
    ]
    candidates_proven: Annotated[
        bool,
        Field(
            description="Whether the documents that were ranked by tokens are proven to be the "
            "best by vectors."
        ),
    ]


class SearchAnswer(BaseModel):
    """An answer for each question, in the order of the questions."""

    model_config = _answer({"answers": [_answer_example(13.9, [0.57, 0.43])]})
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
        str,
        Field(description="A few words that set it apart from the document's other ones."),
    ]


class WordMatchAnswer(BaseModel):
    """A word of the question, and the words of the document that it matches best."""

    word: Annotated[Span, Field(description="The word, as a stretch of the question.")]
    similarity: Annotated[float, Field(description="The mean of its tokens' best dot products.")]
    spans: Annotated[list[Span], Field(description="Where the words that match stand.")]


class ExplainAnswer(BaseModel):
    """Why a document matches a question. The pseudo query with the largest weight comes first."""

    model_config = _answer(
        {
            "query": _QUESTION,
            "document": _BEES,
            "score": 13.9,
            "pseudo_queries": [{**_PSEUDO_QUERY, "similarity": 0.7}],
            "passage": {"start": 0, "end": 69},
            "matches": [
                {
                    "word": {"start": 14, "end": 21},
                    "similarity": 0.61,
                    "spans": [{"start": 24, "end": 28}],
                },
            ],
            "token_score": 0.48,
        }
    )
    query: str
    document: DocumentAnswer
    score: float | None
    pseudo_queries: list[PseudoQueryAnswer]
    passage: Annotated[
        Span | None, Field(description="The sentence that matches the question best.")
    ]
    matches: Annotated[
        list[WordMatchAnswer],
        Field(
            description="For each word of the question, the words of the document that it matches "
            "best. There are none if the index stores no tokens."
        ),
    ]
    token_score: Annotated[
        float | None, Field(description="The score by tokens, if the index stores them.")
    ]


class CompareAnswer(BaseModel):
    """The documents that three ways of searching find for one question."""

    model_config = _answer(
        {
            "pseudo_queries": _answer_example(13.9, [0.57, 0.43]),
            "bm25": _answer_example(1.14, [], candidates=2),
            "one_vector": _answer_example(0.75, []),
        }
    )
    pseudo_queries: QueryAnswer
    bm25: Annotated[QueryAnswer, Field(description="By words alone.")]
    one_vector: Annotated[
        QueryAnswer,
        Field(
            description="By one vector per document, the mean of its pseudo queries. The score is "
            "its dot product with the question's vector."
        ),
    ]


class Point(BaseModel):
    """A point on the map."""

    x: float
    y: float


class MappedPseudoQuery(BaseModel):
    """One pseudo query on the map of its document."""

    point: Point
    label: Annotated[str, Field(description="A few words that set it apart from the others.")]
    spans: list[Span]
    weight: Annotated[float | None, Field(description="null if the request has no question.")]


class MapAnswer(BaseModel):
    """A document's pseudo queries on a plane. The one with the largest weight comes first."""

    model_config = _answer(
        {
            "document": _BEES,
            "pseudo_queries": [{**_PSEUDO_QUERY, "point": {"x": -0.14, "y": 0.41}}],
            "query": {"x": 0.45, "y": -0.09},
            "variance": 1.0,
        }
    )
    document: DocumentAnswer
    pseudo_queries: list[MappedPseudoQuery]
    query: Annotated[Point | None, Field(description="null if the request has no question.")]
    variance: Annotated[
        float, Field(description="The share of the vectors' variance that the plane shows.")
    ]


class WriteAnswer(BaseModel):
    """How many documents a request has changed. The changes are on disk."""

    model_config = _answer({"added": 1, "updated": 0, "unchanged": 0, "cut": 0})
    added: int
    updated: int
    unchanged: int
    cut: Annotated[
        int, Field(description="Documents of which only the beginning is searched by meaning.")
    ]


class DeleteAnswer(BaseModel):
    """The id of the document that was deleted."""

    model_config = _answer({"deleted": "bees"})
    deleted: str


class StateAnswer(BaseModel):
    """That the service works."""

    model_config = _answer({"status": "ok"})
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
    """The form of every error."""

    model_config = _answer(
        {"error": {"code": "not_found", "message": "there is no document with the id 'bees'."}}
    )
    error: ErrorFacts


def explain_answer(explanation: Explanation) -> ExplainAnswer:
    """Write an explanation, with a label for each pseudo query."""
    content = explanation_to_dict(explanation)
    spans = [pseudo_query.spans for pseudo_query in explanation.pseudo_queries]
    names = labels(explanation.document.text, spans)
    for pseudo_query, label in zip(content["pseudo_queries"], names, strict=True):
        pseudo_query["label"] = label
    return ExplainAnswer.model_validate(content)


def map_answer(document_map: DocumentMap) -> MapAnswer:
    """Write a map."""
    content = asdict(document_map)
    return MapAnswer.model_validate(
        {**content, "document": document_to_dict(document_map.document)}
    )
