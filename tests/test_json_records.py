"""Records come back from their JSON as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from pseudoquery.json_records import (
    added_from_dict,
    added_to_dict,
    answer_from_dict,
    answer_to_dict,
    document_from_dict,
    document_to_dict,
    explanation_from_dict,
    explanation_to_dict,
)
from pseudoquery.records import Added, Answer, Document, Explanation, Hit, PseudoQuery, Span

DOCUMENT = Document("a", "moon\nsun", "title", {"n": [1, {"deep": None}]}, origin="d.jsonl line 1")
HITS = (
    Hit("a", 1.5, "title", "moon", {"n": 1}, (0.25, 0.75)),
    Hit("b", -math.inf, "", "", {}),
)
ANSWER = Answer("moon?", HITS, certified=True, candidates=2)
PSEUDO_QUERIES = (PseudoQuery(0.7, 0.2, (Span(0, 4), Span(5, 8))), PseudoQuery(0.3, 0.1, ()))
EXPLANATION = Explanation("moon?", DOCUMENT, 1.5, PSEUDO_QUERIES, Span(0, 4))


@pytest.mark.parametrize(
    ("record", "write", "read"),
    [
        (DOCUMENT, document_to_dict, document_from_dict),
        (ANSWER, answer_to_dict, answer_from_dict),
        (EXPLANATION, explanation_to_dict, explanation_from_dict),
        (Explanation("?", DOCUMENT, -math.inf, ()), explanation_to_dict, explanation_from_dict),
        (Added(1, 2, 3, 4), added_to_dict, added_from_dict),
    ],
)
def test_there_and_back(
    record: Any, write: Callable[[Any], dict[str, Any]], read: Callable[[Any], Any]
) -> None:
    content = json.dumps(write(record), allow_nan=False)
    assert read(json.loads(content)) == record


def test_a_document_does_not_say_where_it_was_read() -> None:
    assert "d.jsonl" not in json.dumps(document_to_dict(DOCUMENT))
    assert "d.jsonl" not in json.dumps(explanation_to_dict(EXPLANATION))


def test_text_can_be_left_out() -> None:
    content = answer_to_dict(ANSWER, include_text=False)
    assert [hit["text"] for hit in content["hits"]] == [None, None]
    assert [hit.text for hit in answer_from_dict(content).hits] == ["", ""]


def test_counts_add_up() -> None:
    assert Added(1, 2, 3, 4) + Added(10, 20, 30, 40) == Added(11, 22, 33, 44)
