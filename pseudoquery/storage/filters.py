"""Conditions on documents' metadata, compiled to SQL in which every name and value is bound.

A folder with the table `fields` looks values up in it; in an older one, the metadata of every
document is read.

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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

_NULL = ("null",)
_KINDS = {
    ("true", "false"): "truth",
    ("integer", "real"): "number",
    ("text",): "text",
    _NULL: "null",
}
"""What the table `fields` calls types that can be compared."""

_FIELD = r"\s*([^\s<>=!]+)"
_MEMBER = re.compile(_FIELD + r"\s+in\s+(.+)", re.DOTALL)
# A second operator after the first, as in == or =>, is a slip, not the beginning of a value.
_COMPARED = re.compile(_FIELD + r"\s*(<=|>=|!=|=|<|>)(?!\s*[<>=!])\s*(.*)", re.DOTALL)
_PART = re.compile(r'(?:^|,)\s*("(?:[^"\\]|\\.)*"\s*(?=,|$)|[^,]*)', re.DOTALL)
"""One value of a list; a comma within quotes is part of the value."""


Sql = tuple[str, list[Any]]
"""An SQL expression and its parameters."""


class Matching(NamedTuple):
    """The documents for which one comparison holds."""

    select: str
    """The SQL that lists their ordinals; some may come twice."""
    parameters: list[Any]
    negated: bool
    """Whether it is the other documents that are wanted."""


def compile_filter(where: Where | None) -> Sql:
    """Turn conditions into an SQL expression over the table `documents`, and its parameters."""
    clauses, parameters = ["1"], []
    for field, operator, value in _all_comparisons(where):
        clause, bound = _test_metadata(field, _tests(field, operator, value))
        clauses.append(f"NOT {clause}" if operator == "!=" else clause)
        parameters.extend(bound)
    return " AND ".join(clauses), parameters


def compile_lookups(where: Where | None) -> list[Matching]:
    """Turn conditions into look-ups in the table `fields`, one for each comparison."""
    lookups = []
    for field, operator, value in _all_comparisons(where):
        found = [_look_up(field, test) for test in _tests(field, operator, value)]
        found = found or [("SELECT ordinal FROM documents WHERE 0", [])]
        parameters = [parameter for _, bound in found for parameter in bound]
        select = " UNION ALL ".join(select for select, _ in found)
        lookups.append(Matching(select, parameters, operator == "!="))
    return lookups


def compile_lookup_filter(where: Where | None, ordinal: str) -> Sql:
    """Turn conditions into an SQL expression over a column of ordinals, by look-ups."""
    lookups = compile_lookups(where)
    clauses = [
        f"{ordinal} {'NOT ' if lookup.negated else ''}IN ({lookup.select})" for lookup in lookups
    ]
    parameters = [parameter for lookup in lookups for parameter in lookup.parameters]
    return " AND ".join(["1", *clauses]), parameters


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


def _all_comparisons(where: Where | None) -> Iterator[tuple[str, str, Any]]:
    """List every comparison as a field, an operator and a value."""
    for field, condition in (where or {}).items():
        if not isinstance(field, str):
            raise QueryError(f"a filter's field must be a name, not {field!r}.")
        _check_text(f"the field {field!r} in the filter", field)
        for operator, value in _comparisons(field, condition):
            yield field, operator, value


class _Test(NamedTuple):
    """A test of values of certain types, such as `>= ?`."""

    types: tuple[str, ...]
    sql: str
    bound: list[Any]


def _tests(field: str, operator: str, value: Any) -> list[_Test]:
    """Turn a comparison into tests, of which one must hold; `!=` tests what must not."""
    if operator in _RANGES:
        bound = _checked(field, value)
        if value is None:
            raise QueryError(f"the filter on {field!r} compares with null; only = and != can.")
        return [_Test(_JSON_TYPES[type(value)], f"{operator} ?", [bound])]
    several = isinstance(value, list | tuple | set | frozenset)
    return _one_of(field, list(value) if several else [value])


def _one_of(field: str, values: list[Any]) -> list[_Test]:
    """Compare with a list of any length, bound as one JSON array for each type of value."""
    by_type: dict[tuple[str, ...], list[Any]] = {}
    for value in values:
        if isinstance(_checked(field, value), float) and math.isinf(value):
            raise QueryError(
                f"the filter on {field!r} compares with {value}, which equals nothing."
            )
        by_type.setdefault(_JSON_TYPES[type(value)], []).append(value)
    return [
        _Test(types, "IN (SELECT atom FROM json_each(?))", [json.dumps(wanted)])
        if types != _NULL
        else _Test(types, "IS NULL", [])
        for types, wanted in by_type.items()
    ]


def _test_metadata(field: str, tests: list[_Test]) -> Sql:
    """Test a field's value or, if that is a list, each of its elements."""
    clauses, parameters = ["0"], []
    for types, test, bound in tests:
        if field == "id":
            clauses.append(f"documents.id {test}")
            parameters += bound
            continue
        named = ", ".join(f"'{name}'" for name in types)
        clauses.append(
            "EXISTS (SELECT 1 FROM json_each(documents.metadata) AS field "  # noqa: S608
            "LEFT JOIN json_each(CASE field.type WHEN 'array' THEN field.value ELSE '[]' END) "
            f"AS element WHERE field.key = ? AND (field.type IN ({named}) AND field.atom {test} "
            f"OR element.type IN ({named}) AND element.atom {test}))"
        )
        parameters += [field, *bound, *bound]
    return f"({' OR '.join(clauses)})", parameters


def _look_up(field: str, test: _Test) -> Sql:
    """List the documents that have a value in a field for which a test holds."""
    if field == "id":
        return f"SELECT ordinal FROM documents WHERE id {test.sql}", test.bound  # noqa: S608
    kind = _KINDS[test.types]
    held = "1" if test.types == _NULL else f"value {test.sql}"
    return (
        f"SELECT ordinal FROM fields WHERE field = ? AND kind = '{kind}' AND {held}",  # noqa: S608
        [field, *test.bound],
    )


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
