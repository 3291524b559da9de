"""Conditions on documents' metadata, compiled to SQL in which every name and value is bound.

    {"language": "en"}                       equal
    {"year": {">=": 1990, "<": 2000}}        a range
    {"topic": ["law", "history"]}            one of
    {"id": ["a", "b"]}                       the document's own id

All conditions must hold. A field that holds a list matches if one of its elements does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pseudoquery.errors import QueryError

Where = Mapping[str, Any]

_RANGES = ("<", "<=", ">", ">=")
_OPERATORS = ("=", "!=", *_RANGES)
_JSON_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("true", "false"),
    int: ("integer", "real"),
    float: ("integer", "real"),
    str: ("text",),
    type(None): ("null",),
}

_FIELD = r"\s*([^\s<>=!]+)"
_MEMBER = re.compile(_FIELD + r"\s+in\s+(.+)", re.DOTALL)
# A second operator after the first, as in == or =>, is a slip, not the beginning of a value.
_COMPARED = re.compile(_FIELD + r"\s*(<=|>=|!=|=|<|>)(?!\s*[<>=!])\s*(.*)", re.DOTALL)
_PART = re.compile(r'(?:^|,)\s*("(?:[^"\\]|\\.)*"\s*(?=,|$)|[^,]*)', re.DOTALL)
"""One value of a list; a comma within quotes is part of the value."""


def compile_filter(where: Where | None) -> tuple[str, list[Any]]:
    """Turn conditions into an SQL expression over the table `documents`, and its parameters."""
    clauses, parameters = ["1"], []
    for field, condition in (where or {}).items():
        if not isinstance(field, str):
            raise QueryError(f"a filter's field must be a name, not {field!r}.")
        _check_text(f"the field {field!r} in the filter", field)
        for operator, value in _comparisons(field, condition):
            clause, bound = _compare(field, operator, value)
            clauses.append(clause)
            parameters.extend(bound)
    return " AND ".join(clauses), parameters


def parse_condition(text: str) -> tuple[str, Any]:
    """Read one condition as typed on the command line: `year>=1990`, `topic=law`, `topic in a,b`.

    A value that reads as a JSON number, true, false, null or quoted string is that; any other is
    text as it stands, and so is an id.
    """
    if member := _MEMBER.fullmatch(text):
        return member[1], [_value(member[1], part) for part in _PART.findall(member[2])]
    if compared := _COMPARED.fullmatch(text):
        return compared[1], {compared[2]: _value(compared[1], compared[3])}
    raise QueryError(
        f"the condition {text!r} is not understood; write it as field=value, field>=value "
        "or 'field in a,b'."
    )


def parse_filter(conditions: Sequence[str]) -> dict[str, Any]:
    """Read conditions as typed; ones on the same field must all hold."""
    where: dict[str, Any] = {}
    for text in conditions:
        field, condition = parse_condition(text)
        where[field] = _joined(field, where[field], condition) if field in where else condition
    return where


def _joined(field: str, first: Any, second: Any) -> dict[str, Any]:
    if isinstance(first, dict) and isinstance(second, dict):
        if not first.keys() & second.keys():
            return {**first, **second}
        if "!=" in second:
            known = first["!="] if isinstance(first["!="], list) else [first["!="]]
            return {**first, "!=": [*known, second["!="]]}
    raise QueryError(f"the field {field!r} is given in two conditions that can't be joined.")


def _comparisons(field: str, condition: Any) -> list[tuple[str, Any]]:
    if isinstance(condition, Mapping):
        for operator in condition:
            if operator not in _OPERATORS:
                raise QueryError(
                    f"the filter on {field!r} uses {operator!r}; choose one of "
                    f"{', '.join(_OPERATORS)}, or give a list of values."
                )
        return list(condition.items())
    return [("=", condition)]


def _compare(field: str, operator: str, value: Any) -> tuple[str, list[Any]]:
    if operator in _RANGES:
        bound = _checked(field, value)
        if value is None:
            raise QueryError(f"the filter on {field!r} compares with null; only = and != can.")
        if field == "id":
            return f"documents.id {operator} ?", [bound]
        return _any_value(field, _JSON_TYPES[type(value)], f"{operator} ?", [bound])
    several = isinstance(value, list | tuple | set | frozenset)
    clause, parameters = _one_of(field, list(value) if several else [value])
    return (f"NOT {clause}" if operator == "!=" else clause), parameters


def _one_of(field: str, values: list[Any]) -> tuple[str, list[Any]]:
    """Compare with a list of any length, bound as one JSON array for each type of value."""
    by_type: dict[tuple[str, ...], list[Any]] = {}
    for value in values:
        if isinstance(_checked(field, value), float) and math.isinf(value):
            raise QueryError(
                f"the filter on {field!r} compares with {value}, which equals nothing."
            )
        by_type.setdefault(_JSON_TYPES[type(value)], []).append(value)
    clauses, parameters = ["0"], []
    for types, wanted in by_type.items():
        listed = "IN (SELECT atom FROM json_each(?))"
        if field == "id":
            clause, bound = f"documents.id {listed}", [json.dumps(wanted)]
        elif types == ("null",):
            clause, bound = _any_value(field, types, "IS NULL", [])
        else:
            clause, bound = _any_value(field, types, listed, [json.dumps(wanted)])
        clauses.append(clause)
        parameters.extend(bound)
    return f"({' OR '.join(clauses)})", parameters


def _any_value(
    field: str, types: tuple[str, ...], test: str, bound: list[Any]
) -> tuple[str, list[Any]]:
    """Test a field's value or, if that is a list, each of its elements."""
    named = ", ".join(f"'{name}'" for name in types)
    clause = (
        "EXISTS (SELECT 1 FROM json_each(documents.metadata) AS field "  # noqa: S608
        "LEFT JOIN json_each(CASE field.type WHEN 'array' THEN field.value ELSE '[]' END) "
        f"AS element WHERE field.key = ? AND (field.type IN ({named}) AND field.atom {test} "
        f"OR element.type IN ({named}) AND element.atom {test}))"
    )
    return clause, [field, *bound, *bound]


def _checked(field: str, value: Any) -> Any:
    if type(value) not in _JSON_TYPES:
        raise QueryError(
            f"the filter on {field!r} compares with {value!r}; use text, a number, "
            "true, false or null."
        )
    if field == "id" and not isinstance(value, str):
        # SQLite would turn the value into text: 5 into '5', but True into '1'.
        raise QueryError(f"the filter on 'id' compares with {value!r}, but ids are text.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise QueryError(f"the number {value} in the filter on {field!r} is too large.")
    if isinstance(value, float) and math.isnan(value):
        raise QueryError(f"the filter on {field!r} compares with NaN, which equals nothing.")
    if isinstance(value, str):
        _check_text(f"the value in the filter on {field!r}", value)
    return value


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise QueryError(f"{what} is not valid Unicode.") from None
    if "\0" in text:
        # SQLite reads a text in JSON only up to its first NUL, and would find another one equal.
        raise QueryError(f"{what} has a NUL character, which can't be compared.")


def _value(field: str, text: str) -> Any:
    text = text.strip()
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    wanted = (str,) if field == "id" else _JSON_TYPES
    return value if type(value) in wanted else text


def _no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python reads as numbers and JSON does not."""
    raise ValueError(name)
