"""The part of the command for people who do research: evaluate, mine, train."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.cli_options import (
    as_json,
    exact_option,
    k_option,
    mode_option,
    model_option,
    path_type,
    preset_option,
    split_option,
)
from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pseudoquery.datasets import Dataset
    from pseudoquery.evaluate import Comparison
    from pseudoquery.runs import Run
    from pseudoquery.trial import Ask


@click.command()
@click.argument("dataset")
@split_option
@click.option("--index", "folder", type=path_type, help="An index of the collection's documents.")
@click.option(
    "--run", "run_file", type=path_type, help="Judge this TREC run file; nothing is searched."
)
@model_option
@preset_option
@k_option
@mode_option
@exact_option
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
@click.option("--save-run", type=path_type, help="Write the ranking as a TREC run file.")
@click.option(
    "--per-query", type=path_type, help="Write each query's figures, a JSON object a line."
)
@click.option("--compare", type=path_type, help="Compare with this run file, by a paired t-test.")
@as_json
def evaluate(dataset: str, split: str, compare: Path | None, as_json: bool, **options: Any) -> None:
    """Measure how well an index, a model or a run answers the queries of DATASET: a folder in
    BEIR's, MS MARCO's or DPR's format, or irds: and an ir_datasets id.
    """
    from pseudoquery.datasets import load_dataset
    from pseudoquery.evaluate import MEASURES, means, per_query
    from pseudoquery.evaluate import compare as compare_runs
    from pseudoquery.runs import read_run, write_run
    from pseudoquery.trial import judge

    if options["folder"] and options["run_file"]:
        raise QueryError("give an --index or a --run, not both.")
    # A search may take hours, so all that can be wrong is looked at before.
    measures = options["measures"] or MEASURES
    per_query({}, (), measures)
    for target in filter(None, (options["save_run"], options["per_query"])):
        if not target.parent.is_dir():
            raise QueryError(f"{target} can't be written: there is no folder {target.parent}.")
    loaded = load_dataset(dataset, split)
    other = judge(read_run(compare), loaded, measures) if compare else {}
    run = read_run(options["run_file"]) if options["run_file"] else _searched(loaded, options)
    if options["save_run"]:
        write_run(run, options["save_run"])
    figures = judge(run, loaded, measures)
    if options["per_query"]:
        _write_per_query(figures, options["per_query"])
    _show(loaded, means(figures), compare_runs(figures, other), as_json)


@click.command()
@click.argument("config", type=path_type)
@as_json
def train(config: Path, as_json: bool) -> None:
    """Train a model as the TOML file CONFIG says; run again after a kill, it goes on."""
    from pseudoquery.train import read_config
    from pseudoquery.train import train as carry_out

    settings = read_config(config)
    finished = carry_out(settings)
    figures = json.loads((finished.parent / "figures.json").read_text())
    if as_json:
        click.echo(json.dumps({"model": str(finished), "figures": figures}))
        return
    from pseudoquery.terminal import show_figures

    click.echo(f"The model is in {finished}.")
    for name, own in figures.items():
        click.echo(f"\n{name}")
        show_figures(own, [])


@click.command()
@click.argument("dataset")
@split_option
@click.option("--out", "target", type=path_type, required=True, help="The file to write.")
@click.option(
    "--model",
    default="bm25",
    show_default=True,
    help="Rank by this model's own score, or by words (bm25).",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Negatives per query.",
)
@as_json
def mine(dataset: str, split: str, target: Path, model: str, depth: int, as_json: bool) -> None:
    """Find hard negatives for the queries of DATASET: documents that are ranked high, are not
    known to be right, and do not contain the answer.
    """
    from pseudoquery.datasets import load_dataset
    from pseudoquery.mine import mine as mine_with
    from pseudoquery.mine import mine_by_words
    from pseudoquery.terminal import working
    from pseudoquery.triples import lesson, write_negatives

    with working("Mining"):
        lessons = [lesson(load_dataset(dataset, split))]
        if model == "bm25":
            negatives = mine_by_words(lessons, depth)
        else:
            from pseudoquery.model import load_model

            negatives = mine_with(load_model(model), lessons, depth)
        write_negatives(negatives, target)
    found = sum(map(len, negatives.values()))
    if as_json:
        click.echo(json.dumps({"queries": len(negatives), "negatives": found}))
    else:
        click.echo(f"Wrote {found:,} negatives for {len(negatives):,} queries to {target}.")


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
    from pseudoquery.model import chosen_representation
    from pseudoquery.terminal import progress
    from pseudoquery.trial import index_dataset

    representation = chosen_representation(options["model"], options["preset_name"], options["k"])
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
