"""Hints for a user whose search found nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pseudoquery.index import Index


def print_text_hint(index: Index, where: Mapping[str, Any]) -> None:
    """Say why nothing matches if a condition compares a number with a field that holds text.

    Every value of a CSV or TSV file is text. One document that has the field tells.
    """
    for field, operator, numbers in _numeric_conditions(where):
        document = next(iter(index.documents({field: {">=": ""}})), None)
        if document is None:
            continue
        value = document.metadata[field]
        values = value if isinstance(value, list) else [value]
        sample = next(item for item in values if isinstance(item, str))
        quoted = ",".join(f'"{number}"' for number in numbers)
        click.echo(
            f"The field {field!r} holds text, such as {sample[:40]!r}, and text never matches a "
            f"number; write --where '{field}{operator}{quoted}' to compare text, or index the "
            "documents from JSON lines, which can hold numbers.",
            err=True,
        )
        return


def _numeric_conditions(where: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the field, the operator and the numbers of each condition that compares numbers."""
    for field, condition in where.items():
        # `parse_filter` makes a list of 'topic in a,b', and an object of all other conditions.
        comparisons = condition if isinstance(condition, dict) else {" in ": condition}
        for operator, value in comparisons.items():
            values = value if isinstance(value, list) else [value]
            if operator != "!=" and all(type(number) in (int, float) for number in values):
                yield field, operator, [json.dumps(number) for number in values]
