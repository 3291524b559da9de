"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table with a line of titles and a line for each row.

    >>> print(format_table(("set", "queries"), [("dev", 12), ("test", 30)]))
    | set | queries |
    |---|---|
    | dev | 12 |
    | test | 30 |
    """
    separator = "|---" * len(titles) + "|"
    return "\n".join([_format_row(titles), separator, *map(_format_row, rows)])


def _format_row(cells: Sequence[object]) -> str:
    texts = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(texts)} |"
