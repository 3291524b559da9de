"""The part of the command that measures speed, each figure beside what the machine could do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.cli_options import as_json, model_option, path_type

if TYPE_CHECKING:
    from pseudoquery.bench import Report

_number = click.IntRange(min=1)
index_option = click.option(
    "--index", "folder", type=path_type, help="Measure on this index, not on synthetic data."
)


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
@_option("--iterations", 10, "Iterations at most.")
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda for a GPU.")
@_option("--repeats", 7, "How often each is timed.")
@as_json
def kmeans(as_json: bool, **settings: Any) -> None:
    """Cluster token embeddings."""
    from pseudoquery.bench_kmeans import bench_kmeans

    _print(bench_kmeans(**settings), as_json)


@bench.command()
@_option("--documents", 64, "Texts to encode.")
@_option("--words", 300, "Words in a synthetic text, about.")
@_option("--k", 8, "Pseudo queries per document, of synthetic texts.")
@model_option
@index_option
@_option("--repeats", 3, "How often each is timed.")
@as_json
def encode(model: str, as_json: bool, **settings: Any) -> None:
    """Index texts, beside encoding them to one vector with sentence-transformers."""
    from pseudoquery.bench_encode import bench_encode

    _print(bench_encode(model_name=model, **settings), as_json)


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
@index_option
@_option("--repeats", 21, "How often each is timed.")
@as_json
def search(as_json: bool, **settings: Any) -> None:
    """Search, proven exact and in two steps, beside Faiss on the same vectors."""
    from pseudoquery.bench_search import bench_search

    _print(bench_search(**settings), as_json)


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
@as_json
def build(as_json: bool, **settings: Any) -> None:
    """Build indexes from synthetic vectors, open them and search: memory and time."""
    from pseudoquery.bench_build import bench_build

    _print(bench_build(**settings), as_json)


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json()))
        return
    from pseudoquery.bench import show

    show(report)
