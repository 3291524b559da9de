"""Filters on documents in Milvus: the engine leaves most documents out, and SQLite decides.

Engines and their versions differ in what a missing field, a list or `true` compares equal to. So
each row carries `facets`, by which the engine can leave out most documents that don't satisfy a
filter and none that does: names in hexadecimal, numbers in double precision, the beginnings of
texts. The remaining documents are filtered by the same SQL as in an index folder.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from pseudoquery.records import Document
from pseudoquery.storage.filters import Where, compile_filter

BEGINNING = 64
"""The engine compares so many characters of a text."""
LARGEST = 10**300
"""Numbers beyond this are all equal to the engine."""

_RANGES = {"<": ("<=", "least"), "<=": ("<=", "least"), ">": (">=", "most"), ">=": (">=", "most")}
"""A range becomes a condition on a field's smallest or largest value. Values are rounded and cut
in order, so one that was smaller may now be equal, but never larger."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def facets(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Write metadata in the form that the expressions of `narrowing` compare."""
    return {
        _name(field): dict(_parts(value if isinstance(value, list) else [value]))
        for field, value in metadata.items()
    }


def narrowing(where: Where | None) -> str:
    """Write an expression of Milvus that holds for all documents that satisfy a filter, and more.

    The expression is empty where nothing can be left out: `!=` and null are left to `satisfying`.
    """
    compile_filter(where)  # refuses what is not a filter
    clauses = []
    for field, condition in (where or {}).items():
        comparisons = condition if isinstance(condition, Mapping) else {"=": condition}
        clauses += [_clause(field, *comparison) for comparison in comparisons.items()]
    return " and ".join(clause for clause in clauses if clause)


def satisfying(where: Where | None, documents: Iterable[Document]) -> set[str]:
    """Return the ids of the documents that satisfy a filter."""
    if not where:
        return {document.id for document in documents}
    clause, parameters = compile_filter(where)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE documents (id TEXT, metadata TEXT)")
        connection.executemany(
            "INSERT INTO documents VALUES (?, ?)",
            [(document.id, json.dumps(dict(document.metadata))) for document in documents],
        )
        rows = connection.execute(f"SELECT id FROM documents WHERE {clause}", parameters)  # noqa: S608
        return {row[0] for row in rows}


def one_of(field: str, texts: Iterable[str]) -> str:
    """Compare a field of text with any of several."""
    return f"{field} in [{', '.join(map(_quoted, texts))}]"


def _parts(values: list[Any]) -> Iterator[tuple[str, Any]]:
    """Sort a field's values by type, and note the extremes of each that has an order."""
    for kind, has_order in (("number", True), ("text", True), ("truth", False)):
        alike = [_coarse(value) for value in values if _kind(value) == kind]
        if alike:
            yield kind, alike
        if alike and has_order:
            yield f"{kind} least", min(alike)
            yield f"{kind} most", max(alike)


def _clause(field: str, operator: str, value: Any) -> str:
    if operator in _RANGES:
        return _range(field, operator, value)
    if operator != "=":
        return ""
    values = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    if not values:
        return "place == -2"  # one of nothing: no row
    if field == "id":
        return one_of("document", values)
    if None in values:
        return ""
    clauses = []
    for kind in ("number", "text", "truth"):
        literals = [_literal(value) for value in values if _kind(value) == kind]
        if literals:
            clauses.append(f"json_contains_any({_path(field, kind)}, [{', '.join(literals)}])")
    return f"({' or '.join(clauses)})"


def _range(field: str, operator: str, value: Any) -> str:
    compared, extreme = _RANGES[operator]
    if field == "id":
        return f"document {operator} {_quoted(value)}"
    kind = _kind(value)
    if kind == "truth":
        return ""
    return f"{_path(field, f'{kind} {extreme}')} {compared} {_literal(value)}"


def _path(field: str, part: str) -> str:
    return f'facets["{_name(field)}"]["{part}"]'


def _name(field: str) -> str:
    """Write a field's name in letters that need no escape."""
    return "f" + field.encode().hex()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else ""


def _coarse(value: Any) -> Any:
    if _kind(value) == "number":
        return float(max(-LARGEST, min(LARGEST, value)))
    return value[:BEGINNING] if isinstance(value, str) else value


def _literal(value: Any) -> str:
    value = _coarse(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
