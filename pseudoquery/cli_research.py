"""The part of the command for people who do research: evaluate."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pseudoquery.datasets import Dataset
    from pseudoquery.evaluate import Comparison
    from pseudoquery.runs import Run
    from pseudoquery.trial import Ask

path = click.Path(path_type=Path)


@click.command()
@click.argument("dataset")
@click.option("--split", required=True, help="The split whose judgements count, such as dev.")
@click.option("--index", "folder", type=path, help="An index of the collection's documents.")
@click.option("--run", "run_file", type=path, help="Judge this TREC run file; nothing is searched.")
@click.option(
    "--model",
    default="default",
    show_default=True,
    help="Index the documents with this model, if no --index or --run is given.",
)
@click.option(
    "--preset",
    "preset_name",
    default="recommended",
    show_default=True,
    help="The model's representation.",
)
@click.option("--k", type=click.IntRange(min=1), help="Pseudo queries per document.")
@click.option(
    "--mode",
    type=click.Choice(["dense", "bm25", "hybrid"]),
    default="dense",
    show_default=True,
    help="By meaning, by words, or both.",
)
@click.option("--exact", is_flag=True, help="Prove every answer.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Documents per query.",
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    help="A measure by its name in ir-measures; may be given several times.",
)
@click.option("--save-run", type=path, help="Write the ranking as a TREC run file.")
@click.option("--per-query", type=path, help="Write each query's figures, a JSON object a line.")
@click.option("--compare", type=path, help="Compare with this run file, by a paired t-test.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
def evaluate(dataset: str, split: str, compare: Path | None, as_json: bool, **options: Any) -> None:
    """Measure how well an index, a model or a run answers the queries of DATASET: a folder in
    BEIR's, MS MARCO's or DPR's format, or irds: and an ir_datasets id.
    """
    from pseudoquery.datasets import load_dataset
    from pseudoquery.evaluate import MEASURES, means
    from pseudoquery.evaluate import compare as compare_runs
    from pseudoquery.runs import read_run, write_run
    from pseudoquery.trial import judge

    if options["folder"] and options["run_file"]:
        raise QueryError("give an --index or a --run, not both.")
    measures = options["measures"] or MEASURES
    loaded = load_dataset(dataset, split)
    run = read_run(options["run_file"]) if options["run_file"] else _searched(loaded, options)
    figures = judge(run, loaded, measures)
    if options["save_run"]:
        write_run(run, options["save_run"])
    if options["per_query"]:
        _write_per_query(figures, options["per_query"])
    other = judge(read_run(compare), loaded, measures) if compare else {}
    _show(loaded, means(figures), compare_runs(figures, other), as_json)


def _searched(dataset: Dataset, options: dict[str, Any]) -> Run:
    """Ask an index that is there, or one that is made for this and then removed."""
    from pseudoquery.trial import Ask

    ask = Ask(options["top"], options["mode"], options["exact"])
    if options["folder"]:
        return _asked(dataset, options["folder"], ask)
    with tempfile.TemporaryDirectory(prefix="pseudoquery-") as folder:
        _index(dataset, Path(folder) / "index", options)
        return _asked(dataset, Path(folder) / "index", ask)


def _index(dataset: Dataset, folder: Path, options: dict[str, Any]) -> None:
    from pseudoquery.representation import preset
    from pseudoquery.terminal import progress
    from pseudoquery.trial import index_dataset

    changes = {"k": options["k"]} if options["k"] else {}
    representation = preset(options["preset_name"], **changes)
    batches = index_dataset(dataset, folder, model=options["model"], representation=representation)
    for _ in progress(batches, dataset.source):
        pass


def _asked(dataset: Dataset, folder: Path, ask: Ask) -> Run:
    from pseudoquery.index import Index
    from pseudoquery.terminal import bar
    from pseudoquery.trial import ask_all

    with bar(len(dataset.queries), "Asking") as advance:
        return ask_all(Index.open(folder), dataset, ask, advance)


def _write_per_query(figures: dict[str, dict[str, float]], target: Path) -> None:
    queries = dict.fromkeys(query for own in figures.values() for query in own)
    rows = (
        {"query": query} | {name: own[query] for name, own in figures.items() if query in own}
        for query in queries
    )
    target.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _show(
    dataset: Dataset, figures: dict[str, float], compared: list[Comparison], as_json: bool
) -> None:
    if as_json:
        report = {"dataset": dataset.name, "queries": len(dataset.queries), "figures": figures}
        rows = {"compared": [asdict(one) for one in compared]} if compared else {}
        click.echo(json.dumps(report | rows))
        return
    from pseudoquery.terminal import show_figures

    show_figures(figures, compared)
