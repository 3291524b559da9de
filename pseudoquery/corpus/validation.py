"""Check that an index can store a document and give it back unchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pseudoquery.errors import CorpusError
from pseudoquery.records import Document

_MAX_DEPTH = 100
"""How deeply metadata may be nested: far less than any JSON writer allows."""


def check_document(document: Document) -> None:
    """Raise CorpusError unless the document can be stored and read back unchanged."""
    problem = next(_find_problems(document), None)
    if problem is not None:
        name = f"document {show_value(document.id)}" if isinstance(document.id, str) else "document"
        raise CorpusError(f"{document.origin or name}: {problem}.")


def _find_problems(document: Document) -> Iterator[str]:
    """Yield each reason why a document can't be stored, as the end of a sentence."""
    fields = {"id": document.id, "title": document.title, "text": document.text}
    for name, value in fields.items():
        if problem := _find_string_problem(value):
            yield f"the {name} {problem}"
    if not document.id:
        yield "the id is empty; it must be a non-empty string"
    if not isinstance(document.metadata, Mapping):
        yield f"the metadata is {describe_type(document.metadata)}; it must be an object"
        return
    for key, value in document.metadata.items():
        if problem := _find_string_problem(key):
            yield f"a key of the metadata {problem}"
        if problem := _find_json_problem(value, depth=1):
            yield f"the metadata under {show_value(key)} {problem}"


def _find_string_problem(value: object) -> str:
    """Say what is wrong with a value that must be text; "" if nothing is."""
    if not isinstance(value, str):
        return f"is {describe_type(value)}; it must be a string"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return (
            f"has the lone surrogate \\u{code:04x} at character {error.start + 1}; "
            "it must be valid Unicode"
        )
    return ""


def _find_json_problem(value: object, depth: int) -> str:
    """Say what is wrong with a value that must be plain JSON; "" if nothing is."""
    if isinstance(value, str):
        return _find_string_problem(value)
    if isinstance(value, list | dict):
        return _find_nested_problem(value, depth)
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"has {value}; a number must be finite"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return "" if fits else "has an integer that does not fit in 64 bits; write it as a string"
    return (
        "" if value is None else f"is or has a value {describe_type(value)}; it must be plain JSON"
    )


def _find_nested_problem(value: list[Any] | dict[Any, Any], depth: int) -> str:
    """Say what is wrong inside a list or an object; "" if nothing is.

    The limit on the depth also stops at a list that contains itself.
    """
    if depth >= _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} levels deep; it must be flatter"
    if isinstance(value, dict):
        for key in value:
            if problem := _find_string_problem(key):
                return f"has a key that {problem}"
    items = value.values() if isinstance(value, dict) else value
    return next(filter(None, (_find_json_problem(item, depth + 1) for item in items)), "")


def describe_type(value: object) -> str:
    """Name the type of a value in the words of JSON, such as "an array"."""
    names = {
        bool: "true or false",
        dict: "an object",
        float: "a number",
        int: "a number",
        list: "an array",
        str: "a string",
        type(None): "null",
    }
    return names.get(type(value), f"of type {type(value).__name__}")


def show_value(value: object) -> str:
    """Quote a value for a message: short, and in characters that a terminal can print."""
    if not isinstance(value, str):
        return describe_type(value)
    return repr(value) if len(value) <= 80 else f"{value[:77]!r}..."
