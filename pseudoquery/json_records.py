"""The JSON of the records, as the service sends it, the client reads it and the command prints it.

JSON has no minus infinity, which is the score of a document without vectors: it is written as null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pseudoquery.records import Added, Answer, Document, Explanation, Hit, PseudoQuery, Span


def document_to_dict(document: Document) -> dict[str, Any]:
    """Write a document, without its origin, which names files of the machine that read it.

    Examples:
        >>> document_to_dict(Document("bees", "Bees tremble.", metadata={"year": 2019}))
        {'id': 'bees', 'text': 'Bees tremble.', 'title': '', 'metadata': {'year': 2019}}
    """
    return {
        "id": document.id,
        "text": document.text,
        "title": document.title,
        "metadata": dict(document.metadata),
    }


def document_from_dict(content: Mapping[str, Any]) -> Document:
    """Read a document."""
    return Document(content["id"], content["text"], content["title"], content["metadata"])


def answer_to_dict(answer: Answer, include_text: bool = True) -> dict[str, Any]:
    """Write the answer to one question; without `include_text`, the text of each hit is null."""
    return {
        "query": answer.query,
        "hits": [
            {
                "id": hit.id,
                "score": _score_to_json(hit.score),
                "title": hit.title,
                "text": hit.text if include_text else None,
                "metadata": hit.metadata,
                "weights": hit.weights,
                "relevance": hit.relevance,
            }
            for hit in answer.hits
        ],
        "certified": answer.certified,
        "candidates": answer.candidates,
        "ranked_by": answer.ranked_by,
        "candidates_proven": answer.candidates_proven,
    }


def answer_from_dict(content: Mapping[str, Any]) -> Answer:
    """Read the answer to one question."""
    hits = [
        Hit(
            hit["id"],
            _score_from_json(hit["score"]),
            hit["title"],
            hit["text"] or "",
            hit["metadata"],
            tuple(hit["weights"]),
            hit["relevance"],
        )
        for hit in content["hits"]
    ]
    return Answer(
        content["query"],
        tuple(hits),
        content["certified"],
        content["candidates"],
        content["ranked_by"],
        content["candidates_proven"],
    )


def explanation_to_dict(explanation: Explanation) -> dict[str, Any]:
    """Write an explanation."""
    return {
        "query": explanation.query,
        "document": document_to_dict(explanation.document),
        "score": _score_to_json(explanation.score),
        "pseudo_queries": [asdict(pseudo_query) for pseudo_query in explanation.pseudo_queries],
        "passage": asdict(explanation.passage) if explanation.passage else None,
        "matches": [asdict(match) for match in explanation.matches],
        "token_score": explanation.token_score,
    }


def explanation_from_dict(content: Mapping[str, Any]) -> Explanation:
    """Read an explanation."""
    return Explanation(
        content["query"],
        document_from_dict(content["document"]),
        _score_from_json(content["score"]),
        tuple(
            PseudoQuery(
                pseudo_query["weight"],
                pseudo_query["similarity"],
                tuple(_span_from_dict(span) for span in pseudo_query["spans"]),
            )
            for pseudo_query in content["pseudo_queries"]
        ),
        _span_from_dict(content["passage"]) if content["passage"] else None,
    )


def added_to_dict(added: Added) -> dict[str, int]:
    """Write how many documents were added, updated, left alone and cut.

    Examples:
        >>> added_to_dict(Added(added=2))
        {'added': 2, 'updated': 0, 'unchanged': 0, 'cut': 0}
    """
    return asdict(added)


def added_from_dict(content: Mapping[str, Any]) -> Added:
    """Read how many documents were added, updated, left alone and cut."""
    return Added(content["added"], content["updated"], content["unchanged"], content["cut"])


def _span_from_dict(content: Mapping[str, int]) -> Span:
    return Span(content["start"], content["end"])


def _score_to_json(score: float) -> float | None:
    return score if math.isfinite(score) else None


def _score_from_json(score: float | None) -> float:
    return -math.inf if score is None else score
