"""What an index can store, and what `check_document` refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document


def holds_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "document '': the id is empty"),
        ({"id": 3}, "document: the id is a number; it must be a string"),
        ({"id": b"a"}, "document: the id is of type bytes"),
        ({"id": "\ud83d"}, "document '\\ud83d': the id has the lone surrogate \\ud83d"),
        ({"text": None}, "document 'a': the text is null"),
        ({"title": None}, "document 'a': the title is null"),
        ({"text": None, "origin": "d.jsonl line 2"}, "d.jsonl line 2: the text is null"),
        ({"metadata": []}, "document 'a': the metadata is an array; it must be an object"),
        ({"metadata": {1: "x"}}, "document 'a': a key of the metadata is a number"),
        ({"metadata": {"k": {1: "x"}}}, "the metadata under 'k' has a key that is a number"),
        ({"metadata": {"k": float("nan")}}, "under 'k' has nan; a number must be finite"),
        ({"metadata": {"k": [2**63]}}, "under 'k' has an integer that does not fit in 64 bits"),
        ({"metadata": {"k": -(2**63) - 1}}, "does not fit in 64 bits"),
        ({"metadata": {"k": (1, 2)}}, "under 'k' is or has a value of type tuple"),
        ({"metadata": {"k": {"x": {3}}}}, "under 'k' is or has a value of type set"),
        ({"metadata": {"k": holds_itself()}}, "under 'k' is nested more than 100 levels deep"),
        ({"id": "x" * 1000, "text": 1}, f"document '{'x' * 77}'...: the text is a number"),
    ],
)
def test_check_document_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError) as raised:
        check_document(Document(**{"id": "a", "text": "x", **fields}))
    assert message in str(raised.value)
    assert str(raised.value).startswith(("document", "d.jsonl line 2: "))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"": ""},
        {"k": [None, True, -(2**63), 2**63 - 1, 0.5, "é", [], {}, {"x": [{"y": 1}]}]},
        {"deep": json.loads("[" * 99 + "]" * 99)},
    ],
)
def test_check_document_accepts(metadata: Mapping[str, Any]) -> None:
    check_document(Document("a", "", "", metadata))
