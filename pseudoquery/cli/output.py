"""What commands print: JSON, progress, counts, and what was skipped."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.errors import CorpusError

if TYPE_CHECKING:
    from pseudoquery.records import Added


class Skipped:
    """Counts records that can't be used, and says what was wrong with the first ones."""

    SHOWN = 5

    def __init__(self, on_error: str) -> None:
        self.count = 0
        self._stop = on_error == "stop"

    def on_bad(self, error: CorpusError) -> None:
        """Raise, or tell and go on."""
        if self._stop:
            raise CorpusError(f"{error} (--on-error skip would leave such records out.)")
        self.count += 1
        if self.count <= self.SHOWN:
            click.echo(f"Skipped: {error}", err=True)
        elif self.count == self.SHOWN + 1:
            click.echo("Skipped: more, which are only counted.", err=True)


def with_progress(batches: Iterable[Added], source: str) -> Iterable[Added]:
    """Show a progress bar over batches, where a person is looking."""
    from pseudoquery.cli.terminal import progress

    return progress(batches, source)


def report_added(batches: Iterable[Added], skipped: Skipped, as_json: bool) -> None:
    """Take in all batches, then say what was added and what was skipped."""
    from pseudoquery.records import Added

    totals = dict.fromkeys(("added", "updated", "unchanged", "cut"), 0)
    for batch in batches:
        for name in totals:
            totals[name] += getattr(batch, name)
    if as_json:
        print_json({**totals, "skipped": skipped.count})
        return
    done = Added(**totals)
    parts = [f"Indexed {count_of(done.added, 'document')}"]
    parts += [f"updated {done.updated:,}"] if done.updated else []
    parts += [f"{done.unchanged:,} were already there"] if done.unchanged else []
    parts += [f"skipped {skipped.count:,}"] if skipped.count else []
    click.echo(", ".join(parts) + ".")
    if done.cut:
        click.echo(
            f"Only the beginning of {count_of(done.cut, 'long document')} was read; "
            "--long windows reads all."
        )


def count_of(number: int, what: str) -> str:
    """Count things in words: 1 document, 2 documents."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, default=plain, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Turn a record into a dictionary."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        # JSON has no minus infinity, the score of a document without vectors.
        return {name: None if one == -math.inf else one for name, one in asdict(value).items()}
    raise TypeError(f"{type(value).__name__} is not JSON")
