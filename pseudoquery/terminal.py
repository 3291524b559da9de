"""How answers, explanations and progress look in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from pseudoquery.records import Answer, Explanation, Hit, PseudoQuery

if TYPE_CHECKING:
    from pseudoquery.index import Added, Index

COLOURS = (
    "black on green3",
    "black on cyan",
    "black on yellow",
    "black on magenta",
    "white on blue",
)
BAR = 24
CONTEXT = 140
"""Characters shown around the winning passage of a hit."""

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def progress(batches: Iterable[Added], source: str, total: int | None = None) -> Iterator[Added]:
    """Show how many documents are done, on stderr, while passing the batches on."""
    with Progress(
        SpinnerColumn(),
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    ) as bar:
        task = bar.add_task("Encoding", total=total or line_count(source))
        for batch in batches:
            bar.advance(task, batch.total)
            yield batch


def line_count(source: str) -> int | None:
    """Count the records of a file that has one a line, to know how far there is to go."""
    path = Path(source)
    path = path / "corpus.jsonl" if path.is_dir() else path
    if source == "-" or path.suffix not in (".jsonl", ".ndjson", ".tsv") or not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def show_answer(index: Index, answer: Answer, mode: str) -> None:
    """Print hits, each with the passage that made it win."""
    for rank, hit in enumerate(answer.hits, start=1):
        heading = Text(f"{rank}. ", style="bold")
        heading.append(hit.title or hit.id, style="bold")
        heading.append(f"  {hit.id}  {hit.score:.3f}", style="dim")
        console.print(heading)
        console.print(_passage(index, answer.query, hit) if mode != "bm25" else _beginning(hit))
        console.print()
    console.print(Text(_verdict(answer, mode), style="dim"))


def show_explanation(explanation: Explanation) -> None:
    """Print the document in the colours of its pseudo queries, and each one's weight as a bar."""
    document = explanation.document
    console.print(Text(document.title or document.id, style="bold"))
    text = Text(document.text)
    for number, pseudo_query in enumerate(explanation.pseudo_queries[: len(COLOURS)]):
        for span in pseudo_query.spans:
            text.stylize(COLOURS[number], span.start, span.end)
    console.print(text)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, width in (("weight", 6), ("", BAR), ("similarity", 10), ("made of", None)):
        table.add_column(heading, no_wrap=True, overflow="ellipsis", width=width)
    for number, pseudo_query in enumerate(explanation.pseudo_queries):
        style = COLOURS[number] if number < len(COLOURS) else "dim"
        table.add_row(
            f"{pseudo_query.weight:.3f}",
            Text("█" * max(1, math.ceil(pseudo_query.weight * BAR)), style=style.split()[-1]),
            f"{pseudo_query.similarity:.3f}",
            Text(_words(document.text, pseudo_query), style="" if number < len(COLOURS) else "dim"),
        )
    console.print(table)
    console.print(Text(f"score {explanation.score:.4f}", style="dim"))


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print facts as a table of two columns."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}={one}" for key, one in value.items())
        shown = (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
        table.add_row(Text(name.replace("_", " "), style="dim"), shown)
    console.print(table)


def _verdict(answer: Answer, mode: str) -> str:
    if not answer.hits:
        return "Nothing was found."
    if mode == "bm25":
        return "Ranked by words alone (BM25)."
    if answer.certified:
        return f"Proven exact; {answer.candidates:,} documents were scored."
    return (
        f"Not proven exact ({answer.candidates:,} documents were scored); --exact would prove it."
    )


def _passage(index: Index, query: str, hit: Hit) -> Text:
    """Show the stretch of text whose tokens weigh most for the query, the winner highlighted."""
    explanation = index.explain(query, hit.id)
    if not any(pseudo_query.spans for pseudo_query in explanation.pseudo_queries):
        return _beginning(hit)
    text = Text(hit.text.replace("\n", " "))
    for span in explanation.pseudo_queries[0].spans:
        text.stylize("bold green", span.start, span.end)
    start, end = _heaviest(explanation)
    before, after = "…" if start else "", "…" if end < len(hit.text) else ""
    return Text("   ").append(before).append_text(text[start:end]).append(after)


def _heaviest(explanation: Explanation) -> tuple[int, int]:
    """Find the stretch of text whose characters have the largest weight together."""
    length = len(explanation.document.text)
    weights = np.zeros(length + 1)
    for pseudo_query in explanation.pseudo_queries:
        for span in pseudo_query.spans:
            weights[span.start + 1 : span.end + 1] = pseudo_query.weight
    running = np.cumsum(weights)
    width = min(2 * CONTEXT, length)
    start = int(np.argmax(running[width:] - running[: length + 1 - width]))
    # Begin at a word, a little before.
    start = explanation.document.text.rfind(" ", 0, start) + 1 if start else 0
    return start, min(length, start + width)


def _beginning(hit: Hit) -> Text:
    text = " ".join(hit.text.split())
    return Text("   " + text[: 2 * CONTEXT] + ("…" if len(text) > 2 * CONTEXT else ""))


def _words(text: str, pseudo_query: PseudoQuery) -> str:
    if not pseudo_query.spans:
        return "(the document as a whole)"
    longest = sorted(pseudo_query.spans, key=lambda span: span.start - span.end)[:6]
    return " · ".join(
        " ".join(text[span.start : span.end].split())
        for span in sorted(longest, key=lambda span: span.start)
    )
