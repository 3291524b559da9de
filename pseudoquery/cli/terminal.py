"""How answers, explanations and progress look in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status
from rich.table import Table
from rich.text import Text

from pseudoquery.records import Answer, Document, Explanation, Hit, PseudoQuery, Span

if TYPE_CHECKING:
    from pseudoquery.evaluation.calibrate import Reliability
    from pseudoquery.evaluation.measures import Comparison
    from pseudoquery.index import Index
    from pseudoquery.records import Added

COLOURS = (
    "black on green3",
    "black on cyan",
    "black on yellow",
    "black on magenta",
    "white on blue",
)
BAR = 20
CONTEXT = 300
"""About how many characters of a hit are shown."""
CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)


def show_progress(batches: Iterable[Added], source: str) -> Iterator[Added]:
    """Show how many documents are done while the batches pass."""
    with show_bar(count_lines(source)) as advance:
        for batch in batches:
            advance(batch.total)
            yield batch


@contextmanager
def show_bar(total: int | None, title: str = "Encoding") -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr; yield a function to call with how many more are done."""
    with Progress(
        SpinnerColumn(),
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=error_console,
        transient=True,
        disable=not error_console.is_terminal,  # a file would only get an empty line
    ) as progress:
        task = progress.add_task(title, total=total)
        yield lambda more: progress.advance(task, more)


class _Rate(ProgressColumn):
    """How many are done per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")


def show_status(title: str) -> Status:
    """Show on stderr what is going on, if stderr is a terminal."""
    return error_console.status(f"{title} …")


def count_lines(source: str) -> int | None:
    """Count the records of a file that has one per line; None if the source is no such file."""
    path = Path(source)
    path = path / "corpus.jsonl" if path.is_dir() else path
    if (
        source in ("", "-")
        or path.suffix not in (".jsonl", ".ndjson", ".tsv")
        or not path.is_file()
    ):
        return None
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def show_answer(index: Index, answer: Answer, mode: str) -> None:
    """Print the hits, each with the passage that answers best."""
    for rank, hit in enumerate(answer.hits, start=1):
        heading = Text(f"{rank}. ", style="bold")
        heading.append((hit.title or hit.id).translate(CONTROLS), style="bold")
        id_ = f"  {hit.id.translate(CONTROLS)}" if hit.title else ""
        heading.append(f"{id_}  {hit.score:.3f}", style="dim")
        console.print(heading)
        by_words = mode == "bm25"
        text = _format_beginning(hit) if by_words else _format_passage(index, answer.query, hit)
        console.print(Padding(text, (0, 0, 0, 3)))
        console.print()
    console.print(Text(_describe_proof(answer, mode), style="dim"))


def show_explanation(explanation: Explanation) -> None:
    """Print a document in the colours of its pseudo queries, and the weight of each as a bar."""
    document = explanation.document
    console.print(Text((document.title or document.id).translate(CONTROLS), style="bold"))
    text = _blank_controls(document.text)
    for number, pseudo_query in enumerate(explanation.pseudo_queries[: len(COLOURS)]):
        for span in pseudo_query.spans:
            text.stylize(COLOURS[number], span.start, span.end)
    for match in explanation.matches:
        for span in match.spans:
            text.stylize("bold underline", span.start, span.end)
    console.print(text)
    console.print()
    if explanation.matches:
        _show_matches(explanation)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for heading, width in (("weight", 6), ("", BAR), ("similarity", 10)):
        table.add_column(heading, width=width)
    table.add_column("made of", no_wrap=True, overflow="ellipsis", ratio=1)
    for number, pseudo_query in enumerate(explanation.pseudo_queries):
        style = COLOURS[number] if number < len(COLOURS) else "dim"
        table.add_row(
            f"{pseudo_query.weight:.3f}",
            Text("█" * round(pseudo_query.weight * BAR), style=style.split()[-1]),
            f"{pseudo_query.similarity:.3f}",
            Text(
                _quote_spans(document, pseudo_query), style="" if number < len(COLOURS) else "dim"
            ),
        )
    console.print(table)
    score = f"score by vectors {explanation.score:.4f}"
    if explanation.token_score is not None:
        score += f", by tokens {explanation.token_score:.4f}"
    console.print(Text(score, style="dim"))


def _show_matches(explanation: Explanation) -> None:
    """Print the words of the question, and the words of the document that they match best."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("question", "", "similarity", "document"):
        table.add_column(heading)
    question, text = explanation.query.translate(CONTROLS), explanation.document.text
    for match in explanation.matches:
        word = question[match.word.start : match.word.end]
        if not word.isalnum():
            continue  # a full stop matches another one
        matched = " · ".join(text[span.start : span.end] for span in match.spans)
        table.add_row(
            Text(word, style="bold"),
            Text("█" * round(max(match.similarity, 0.0) * BAR), style="green"),
            f"{match.similarity:.3f}",
            Text(matched.translate(CONTROLS), style="bold underline")
            if matched
            else Text("(in the title)", style="dim"),
        )
    console.print(table)
    console.print()


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print facts as a table of two columns."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}={setting}" for key, setting in value.items())
        text = f"{value:,}" if type(value) is int else str(value)
        table.add_row(Text(name.replace("_", " "), style="dim"), Text(text))
    console.print(table)


def show_figures(figures: Mapping[str, float], comparisons: Sequence[Comparison]) -> None:
    """Print each measure in percent and how it compares with another run."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("measure")
    headings = ["this run", "other run", "better", "worse", "p"] if comparisons else ["%"]
    for heading in headings:
        table.add_column(heading, justify="right")
    by_measure = {comparison.measure: comparison for comparison in comparisons}
    for name, value in figures.items():
        row = [name, f"{100 * value:.2f}"]
        if comparison := by_measure.get(name):
            p_value = comparison.p_value
            row += [f"{100 * comparison.second:.2f}"]
            row += [f"{comparison.better:,}", f"{comparison.worse:,}"]
            row += [f"{p_value:.4f}" if p_value >= 0.0001 else "<0.0001"]
        table.add_row(*row)
    console.print(table)


def show_reliability(reliability: Mapping[str, Reliability]) -> None:
    """Print, for each collection, what the best hits are said to be and what they are."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("collection")
    for heading in ("relevance of best hits", "relevant", "of foreign questions", "squared error"):
        table.add_column(heading, justify="right")
    for name, figures in reliability.items():
        shares = (figures.predicted, figures.relevant, figures.foreign)
        table.add_row(name, *(f"{share:.1%}" for share in shares), f"{figures.hits_error:.4f}")
    console.print(table)


def _describe_proof(answer: Answer, mode: str) -> str:
    if not answer.hits:
        return "Nothing was found."
    if mode == "bm25":
        return "Ranked by words alone (BM25)."
    scored = f"{answer.candidates:,} documents were scored"
    if answer.candidates == 1:
        scored = "1 document was scored"
    if answer.certified:
        return f"Proven exact; {scored}."
    proof = "proven" if answer.candidates_proven else "not proven"
    if answer.ranked_by == "tokens and words":
        return (
            f"Ranked by tokens and words: {answer.candidates:,} documents, the best by vectors "
            f"({proof}) or by words; use --exact to rank all documents by tokens."
        )
    if answer.ranked_by == "tokens":
        return (
            f"Ranked by tokens: the {answer.candidates:,} best documents by vectors ({proof}); "
            "use --exact to rank all documents."
        )
    return f"Not proven exact ({scored}); use --exact to prove it."


def _format_passage(index: Index, query: str, hit: Hit) -> Text:
    """Highlight the passage that answers best, in its context."""
    passage = index.explain(query, hit.id).passage
    if passage is None:
        return _format_beginning(hit)
    text = _blank_controls(hit.text.replace("\n", " "))
    text.stylize("bold green", passage.start, passage.end)
    around = max(0, CONTEXT - (passage.end - passage.start)) // 2
    start = hit.text.rfind(" ", 0, max(0, passage.start - around) + 1) + 1
    end = min(len(hit.text), max(passage.end, start + CONTEXT))
    before, after = "… " if start else "", "…" if end < len(hit.text) else ""
    return Text(before).append_text(text[start:end]).append(after)


def _format_beginning(hit: Hit) -> Text:
    text = " ".join(hit.text.split())
    return _blank_controls(text[:CONTEXT] + ("…" if len(text) > CONTEXT else ""))


def _blank_controls(text: str) -> Text:
    """Replace each control character by a space: it could command the terminal, and rich drops
    some, such as carriage returns, which would shift the highlights.
    """
    return Text(text.translate(CONTROLS))


def _quote_spans(document: Document, pseudo_query: PseudoQuery) -> str:
    text = document.text.translate(CONTROLS)
    if not pseudo_query.spans:
        return "(the document as a whole)"
    longest = sorted(pseudo_query.spans, key=lambda span: span.start - span.end)[:6]
    return " · ".join(
        _extend_to_words(text, span) for span in sorted(longest, key=lambda span: span.start)
    )


def _extend_to_words(text: str, span: Span) -> str:
    """Return the text of a span on one line, extended to whole words."""
    start, end = span.start, span.end
    while start > 0 and text[start - 1 : start + 1].isalnum():
        start -= 1
    while end < len(text) and text[end - 1 : end + 1].isalnum():
        end += 1
    words = " ".join(text[start:end].split())
    return words.lstrip(".,;:!? ") or words
