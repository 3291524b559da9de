"""The part of the command that measures speed, each figure beside what the machine could do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from pseudoquery.cli.options import as_json, model_option, path_type, refuse_without_effect
from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pathlib import Path

    from pseudoquery.bench.compare import Change
    from pseudoquery.bench.report import Report

Earlier: TypeAlias = Mapping[str, Any] | None
_number = click.IntRange(min=1)
index_option = click.option(
    "--index", "folder", type=path_type, help="Measure on this index, not on synthetic data."
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to compute; cuda is a GPU.",
)
against_option = click.option(
    "--against",
    type=path_type,
    callback=lambda _, __, path: _read_earlier(path),
    help="A report that --json wrote before: show which ratios have become worse, and exit with 1 "
    "if one has by more than runs differ.",
)


def _read_earlier(path: Path | None) -> Earlier:
    from pseudoquery.bench.compare import read_report

    return read_report(path) if path else None


def _option(name: str, default: int, help_: str) -> Callable[[Any], Any]:
    return click.option(name, type=_number, default=default, show_default=True, help=help_)


@click.group()
def bench() -> None:
    """Measure how fast this is here, beside the least time that the machine allows.

    The floor of each row is the bytes it has to read over the measured bandwidth, or its operations
    over the measured rate. What is compared takes turns in one run; the median is shown.
    """


@bench.command()
@_option("--documents", 16, "Documents in the batch.")
@_option("--tokens", 512, "Tokens of each document.")
@_option("--dimension", 384, "Numbers in a token's embedding.")
@_option("--k", 8, "Clusters of each document.")
@_option("--iterations", 10, "Iterations at most: labels for all tokens, then new means.")
@device_option
@_option("--repeats", 7, "How often each is timed.")
@against_option
@as_json
def kmeans(device: str, against: Earlier, as_json: bool, **settings: Any) -> None:
    """Cluster token embeddings; on a GPU, beside the forward of encoders."""
    from pseudoquery.bench.kmeans import bench_kmeans

    _check(device)
    _print(bench_kmeans(device=device, **settings), as_json, against)


@bench.command()
@_option("--documents", 64, "Texts to encode.")
@_option("--words", 300, "Words in a synthetic text, about.")
@_option("--k", 8, "Pseudo queries per document, of synthetic texts.")
@model_option
@index_option
@_option("--repeats", 3, "How often each is timed.")
@against_option
@as_json
def encode(model: str, against: Earlier, as_json: bool, **settings: Any) -> None:
    """Index texts, beside encoding them to one vector with sentence-transformers."""
    from pseudoquery.bench.encode import bench_encode

    _print(bench_encode(model_name=model, **settings), as_json, against)


@bench.command()
@_option("--documents", 20_000, "Documents to search.")
@_option("--k", 8, "Vectors of each document.")
@_option("--dimension", 384, "Numbers in a vector.")
@_option("--queries", 64, "Queries in a batch.")
@_option("--top", 10, "Documents to find.")
@click.option(
    "--structure",
    "structures",
    type=click.Choice(["flat", "hnsw", "hnsw8", "ivf", "ivf8"]),
    multiple=True,
    default=("flat", "hnsw"),
    show_default=True,
    help="First steps to compare the scan in 8 bits with; may be given several times.",
)
@click.option(
    "--vector-type",
    type=click.Choice(["float16", "bfloat16", "float32", "int8"]),
    default="float16",
    show_default=True,
    help="What vectors are kept in on a GPU.",
)
@index_option
@device_option
@_option("--repeats", 21, "How often each is timed.")
@against_option
@as_json
def search(device: str, vector_type: str, against: Earlier, as_json: bool, **settings: Any) -> None:
    """Search, proven exact and in two steps, beside Faiss on the same vectors; or on a GPU all
    documents, beside reading their vectors and one product with them.
    """
    _check(device)
    if device == "cpu":
        from pseudoquery.bench.search import bench_search

        refuse_without_effect(["vector_type"], "without --device cuda")
        _print(bench_search(**settings), as_json, against)
        return
    from pseudoquery.bench.gpu_search import bench_gpu_search

    refuse_without_effect(["structures", "folder"], "with --device cuda")
    del settings["structures"], settings["folder"]
    _print(bench_gpu_search(vector_type=vector_type, **settings), as_json, against)


@bench.command()
@click.option(
    "--documents",
    "sizes",
    type=_number,
    multiple=True,
    default=(10_000, 100_000),
    show_default=True,
    help="Documents in an index; give it twice to see what a larger one takes.",
)
@_option("--k", 8, "Vectors of each document.")
@_option("--dimension", 384, "Numbers in a vector.")
@_option("--batch", 64, "Documents in a commit.")
@click.option("--where", type=path_type, help="The folder to build in; by default a temporary one.")
@against_option
@as_json
def build(against: Earlier, as_json: bool, **settings: Any) -> None:
    """Build indexes from synthetic vectors, open them and search: memory and time."""
    from pseudoquery.bench.build import bench_build

    _print(bench_build(**settings), as_json, against)


def _check(device: str) -> None:
    from pseudoquery.method.gpu import runs_kernels

    if device == "cuda" and not runs_kernels(device):
        raise QueryError(
            "there is no NVIDIA GPU with Triton here; leave --device away to use the CPU."
        )


def _print(report: Report, as_json: bool, against: Earlier) -> None:
    from pseudoquery.bench.compare import compare_reports

    if not as_json:
        show(report)  # before it is compared, which may be refused
    changes = compare_reports(report, against) if against else []
    if as_json:
        beside = {"against": [asdict(change) for change in changes]} if against else {}
        click.echo(json.dumps(report.as_json() | beside))
    elif against:
        show_changes(changes)
    if any(change.worse for change in changes):
        sys.exit(1)


def show(report: Report) -> None:
    """Print a report as tables."""
    from rich.table import Table
    from rich.text import Text

    from pseudoquery.bench.report import format_duration
    from pseudoquery.cli.terminal import console

    for facts in (report.machine, report.data):
        shown = " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        console.print(Text(shown, style="dim"))
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what", overflow="fold")
    for heading in ("time", "floor", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", style="dim", overflow="fold")
    for row in report.rows:
        table.add_row(
            row.what,
            format_duration(row.seconds),
            format_duration(row.floor),
            f"{row.ratio:,.1f}",
            row.note,
        )
    console.print(table)
    for check in report.checks:
        sign = "≤" if check.at_most else "≥"
        verdict = Text("✓ " if check.met else "✗ ", style="green" if check.met else "red")
        unit = f" {check.unit}" if check.unit else ""
        verdict.append(f"{check.what}: {check.value:.3g}{unit}", style="bold")
        verdict.append(f"  (to reach: {sign} {check.target:g})", style="dim")
        console.print(verdict)


def show_changes(changes: list[Change]) -> None:
    """Print how each ratio has changed."""
    from rich.table import Table

    from pseudoquery.bench.compare import ALLOWED
    from pseudoquery.cli.terminal import console

    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("ratio", overflow="fold")
    for heading in ("before", "now", "times as bad"):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in changes:
        style = "red" if change.worse else ""
        numbers = (change.before, change.now, change.factor)
        table.add_row(change.what, *map(_written, numbers), style=style)
    console.print(table)
    worse = sum(change.worse for change in changes)
    console.print(
        f"{worse} of {len(changes)} ratios are worse by more than {ALLOWED:g} times."
        if worse
        else f"None of {len(changes)} ratios is worse by more than {ALLOWED:g} times."
    )


def _written(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
