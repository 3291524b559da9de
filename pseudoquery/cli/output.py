"""What several commands print: JSON, counts, and skipped records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.errors import CorpusError

if TYPE_CHECKING:
    from pseudoquery.records import Added, Document


class Skipped:
    """Counts the records that can't be used, and prints what is wrong with the first of them."""

    MAX_PRINTED = 5

    def __init__(self, on_error: str) -> None:
        self.count = 0
        self._stop = on_error == "stop"

    def on_bad(self, error: CorpusError) -> None:
        """Raise the error, or print it and continue."""
        if self._stop:
            raise CorpusError(f"{error} (To skip such records, use --on-error skip.)")
        self.count += 1
        if self.count <= self.MAX_PRINTED:
            click.echo(f"Skipped: {error}", err=True)
        elif self.count == self.MAX_PRINTED + 1:
            click.echo("Skipped more records, which are only counted.", err=True)


def report_added(
    batches: Iterable[Added], skipped: Skipped, as_json: bool, verb: str = "Indexed"
) -> None:
    """Run all batches, then print how many documents were added, and how many were not."""
    from pseudoquery.json_records import added_to_dict
    from pseudoquery.records import Added

    added = sum(batches, Added())
    if as_json:
        print_json({**added_to_dict(added), "skipped": skipped.count})
        return
    parts = [f"{verb} {format_count(added.added, 'document')}"]
    parts += [f"updated {added.updated:,}"] if added.updated else []
    parts += [f"left {added.unchanged:,} unchanged"] if added.unchanged else []
    parts += [f"skipped {skipped.count:,}"] if skipped.count else []
    click.echo(", ".join(parts) + ".")
    if added.cut:
        click.echo(describe_cut(added.cut))


def describe_cut(count: int) -> str:
    """Say that only the beginning of some documents was encoded."""
    documents = format_count(count, "long document")
    return f"Encoded only the beginning of {documents}; --long windows encodes whole documents."


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: 1 document, 2 documents."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def document_with_origin(document: Document) -> dict[str, Any]:
    """Write a document with its origin, which the JSON of the commands calls `place`."""
    from pseudoquery.json_records import document_to_dict

    return {**document_to_dict(document), "place": document.origin}
