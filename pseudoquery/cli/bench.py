"""The commands that measure speed, beside the least time that the machine allows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from pseudoquery.cli.options import json_option, model_option, path_type, refuse_without_effect
from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pathlib import Path

    from pseudoquery.bench.compare import Change
    from pseudoquery.bench.report import Report

EarlierReport: TypeAlias = Mapping[str, Any] | None
positive_integer = click.IntRange(min=1)
index_option = click.option(
    "--index", "folder", type=path_type, help="Measure on this index instead of synthetic data."
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to compute; cuda means a GPU.",
)
against_option = click.option(
    "--against",
    type=path_type,
    callback=lambda _, __, path: _read_report(path),
    help="Compare with this report, which --json wrote earlier. Exit with 1 if a ratio is worse by "
    "more than runs usually differ.",
)


def _read_report(path: Path | None) -> EarlierReport:
    from pseudoquery.bench.compare import read_report

    return read_report(path) if path else None


def _option(name: str, default: int, help_: str) -> Callable[[Any], Any]:
    return click.option(name, type=positive_integer, default=default, show_default=True, help=help_)


@click.group()
def bench() -> None:
    """Measure speed, beside the least time that this machine allows.

    The least time is the floor of a row: the bytes that it must read divided by the measured
    bandwidth, or its operations divided by the measured rate. Rows that are compared take turns in
    one run. Each time is a median.
    """


@bench.command()
@_option("--documents", 16, "Documents in the batch.")
@_option("--tokens", 512, "Tokens in each document.")
@_option("--dimension", 384, "Numbers in a token's embedding.")
@_option("--k", 8, "Clusters in each document.")
@_option(
    "--iterations", 10, "The most iterations; each labels all tokens, then computes new means."
)
@device_option
@_option("--repeats", 7, "How often to time each row.")
@against_option
@json_option
def kmeans(device: str, against: EarlierReport, as_json: bool, **settings: Any) -> None:
    """Measure k-means on token embeddings.

    On a GPU, also measure the forward pass of encoders, to compare.
    """
    from pseudoquery.bench.kmeans import bench_kmeans

    _check_device(device)
    _finish(bench_kmeans(device=device, **settings), as_json, against)


@bench.command()
@_option("--documents", 64, "Texts to encode.")
@_option("--words", 300, "About how many words a synthetic text has.")
@_option("--k", 8, "Pseudo queries per synthetic text.")
@model_option
@index_option
@_option("--repeats", 3, "How often to time each row.")
@against_option
@json_option
def encode(model: str, against: EarlierReport, as_json: bool, **settings: Any) -> None:
    """Measure indexing, beside sentence-transformers.

    sentence-transformers encodes the same texts, to one vector each.
    """
    from pseudoquery.bench.encode import bench_encode

    _finish(bench_encode(model_name=model, **settings), as_json, against)


@bench.command()
@_option("--documents", 20_000, "Documents to search.")
@_option("--k", 8, "Vectors per document.")
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
    help="Compare the scan in 8 bits with this first step. Repeat the option for several.",
)
@click.option(
    "--vector-type",
    type=click.Choice(["float16", "bfloat16", "float32", "int8"]),
    default="float16",
    show_default=True,
    help="The type of the numbers in the vectors on a GPU.",
)
@index_option
@device_option
@_option("--repeats", 21, "How often to time each row.")
@against_option
@json_option
def search(
    device: str, vector_type: str, against: EarlierReport, as_json: bool, **settings: Any
) -> None:
    """Measure search, beside Faiss on the same vectors.

    The report has searches that are proven exact and searches in two steps. On a GPU, measure a
    search of all documents, beside reading their vectors once and one matrix product with them.
    """
    _check_device(device)
    if device == "cpu":
        from pseudoquery.bench.search import bench_search

        refuse_without_effect(["vector_type"], "without --device cuda")
        _finish(bench_search(**settings), as_json, against)
        return
    from pseudoquery.bench.gpu_search import bench_gpu_search

    refuse_without_effect(["structures", "folder"], "with --device cuda")
    del settings["structures"], settings["folder"]
    _finish(bench_gpu_search(vector_type=vector_type, **settings), as_json, against)


@bench.command()
@click.option(
    "--documents",
    "sizes",
    type=positive_integer,
    multiple=True,
    default=(10_000, 100_000),
    show_default=True,
    help="Documents in an index. Repeat the option to see what a larger index takes.",
)
@_option("--k", 8, "Vectors per document.")
@_option("--dimension", 384, "Numbers in a vector.")
@_option("--batch", 64, "Documents per commit.")
@click.option(
    "--where", type=path_type, help="The folder to build in. The default is a temporary folder."
)
@against_option
@json_option
def build(against: EarlierReport, as_json: bool, **settings: Any) -> None:
    """Measure the memory and time to build, open and search an index.

    The vectors of the index are synthetic.
    """
    from pseudoquery.bench.build import bench_build

    _finish(bench_build(**settings), as_json, against)


def _check_device(device: str) -> None:
    from pseudoquery.method.gpu import runs_kernels

    if device == "cuda" and not runs_kernels(device):
        raise QueryError(
            "this machine has no NVIDIA GPU with Triton; leave out --device to use the CPU."
        )


def _finish(report: Report, as_json: bool, against: EarlierReport) -> None:
    from pseudoquery.bench.compare import compare_reports

    if not as_json:
        print_report(report)  # first, because the comparison may be refused
    changes = compare_reports(report, against) if against else []
    if as_json:
        comparison = {"against": [asdict(change) for change in changes]} if against else {}
        click.echo(json.dumps(report.as_json() | comparison))
    elif against:
        print_changes(changes)
    if any(change.worse for change in changes):
        sys.exit(1)


def print_report(report: Report) -> None:
    """Print a report as tables."""
    from rich.table import Table
    from rich.text import Text

    from pseudoquery.bench.report import format_duration
    from pseudoquery.cli.terminal import console

    for facts in (report.machine, report.data):
        line = " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        console.print(Text(line, style="dim"))
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
        verdict.append(f"  (goal: {sign} {check.target:g})", style="dim")
        console.print(verdict)


def print_changes(changes: list[Change]) -> None:
    """Print how each ratio has changed since an earlier report."""
    from rich.table import Table

    from pseudoquery.bench.compare import ALLOWED
    from pseudoquery.cli.terminal import console

    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("ratio", overflow="fold")
    for heading in ("before", "now", "factor"):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in changes:
        style = "red" if change.worse else ""
        numbers = (change.before, change.now, change.factor)
        table.add_row(change.what, *map(_format_number, numbers), style=style)
    console.print(table)
    worse = sum(change.worse for change in changes)
    console.print(
        f"{worse} of {len(changes)} ratios are worse by more than a factor of {ALLOWED:g}."
        if worse
        else f"None of {len(changes)} ratios is worse by more than a factor of {ALLOWED:g}."
    )


def _format_number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
