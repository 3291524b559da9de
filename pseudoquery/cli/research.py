"""Commands for research: train a model, mine negatives, and run the paper's experiments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pseudoquery.cli.options import (
    cluster_option,
    json_option,
    path_type,
    refuse_without_effect,
    split_option,
)
from pseudoquery.cli.output import format_count
from pseudoquery.research.tables import EXPERIMENTS


@click.command()
@click.argument("config", type=path_type)
@click.option("--output", type=path_type, help="Write to this folder, and not to CONFIG's.")
@click.option("--seed", type=click.IntRange(min=0), help="Use this seed, and not CONFIG's.")
@json_option
def train(config: Path, output: Path | None, seed: int | None, as_json: bool) -> None:
    """Train a model as the TOML file CONFIG says.

    If training is interrupted, run the same command again: it continues at its last checkpoint.
    """
    from pseudoquery.training.config import read_config
    from pseudoquery.training.distributed import is_first
    from pseudoquery.training.train import train as train_model

    settings = read_config(config)
    if output is not None:
        settings = replace(settings, output=str(output))
    if seed is not None:
        settings = replace(settings, seed=seed)
    model = train_model(settings)
    if not is_first():
        return
    figures = json.loads((model.parent / "figures.json").read_text())
    if as_json:
        click.echo(json.dumps({"model": str(model), "figures": figures}))
        return
    from pseudoquery.cli.terminal import show_figures

    click.echo(f"The model is in {model}.")
    for dataset, values in figures.items():
        click.echo(f"\n{dataset}")
        show_figures(values, [])


@click.command()
@click.argument("dataset")
@split_option
@click.option("--out", "target", type=path_type, required=True, help="The file to write.")
@click.option(
    "--model",
    default="bm25",
    show_default=True,
    help="Rank documents with this model, or by words (bm25).",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many negatives to find per query.",
)
@cluster_option
@json_option
def mine(
    dataset: str,
    split: str,
    target: Path,
    model: str,
    depth: int,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Find hard negatives for the queries of DATASET.

    A hard negative is a document that ranks high, is not judged as relevant, and does not contain
    an answer. DATASET is a test collection, as for `pseudoquery evaluate`.
    """
    from pseudoquery.cli.terminal import show_status
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.training.examples import make_training_set
    from pseudoquery.training.mine import mine as mine_with
    from pseudoquery.training.mine import mine_by_words
    from pseudoquery.training.negatives import write_negatives

    if model == "bm25":
        refuse_without_effect(["cluster"], "with --model bm25")
    with show_status("Mining"):
        training_sets = [make_training_set(load_dataset(dataset, split))]
        if model == "bm25":
            negatives = mine_by_words(training_sets, depth)
        else:
            from pseudoquery.encoding.model import load_model
            from pseudoquery.training.batches import tokenise_sets

            loaded = load_model(model)
            tokenised = tokenise_sets(loaded, training_sets)
            if cluster:
                from pseudoquery.cluster.search import mine_on_cluster

                negatives = mine_on_cluster(cluster, loaded, tokenised, depth)
            else:
                negatives = mine_with(loaded, tokenised, depth)
        write_negatives(negatives, target)
    count = sum(map(len, negatives.values()))
    if as_json:
        click.echo(json.dumps({"queries": len(negatives), "negatives": count}))
    else:
        queries = format_count(len(negatives), "query", "queries")
        click.echo(f"Wrote {format_count(count, 'negative')} for {queries} to {target}.")


@click.command()
@click.argument("name", type=click.Choice([*EXPERIMENTS, "table4"]))
@click.option(
    "--data",
    type=path_type,
    help="The folder of the test collections; table4, which measures time, needs none.",
)
@click.option(
    "--out", type=path_type, default="results", show_default=True, help="The folder to write to."
)
@click.option("--model", default="minilm", show_default=True, help="The encoder to start from.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Models per row."
)
@click.option(
    "--row", "rows", multiple=True, help="Run only this row. Repeat the option for several."
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Try this rate instead of each row's. The result goes into rates.md, not into the table.",
)
@click.option("--report", is_flag=True, help="Train nothing; write the report of earlier runs.")
@click.option("--small", is_flag=True, help="Use a short schedule that a CPU can run, as a test.")
@json_option
def experiment(name: str, data: Path | None, out: Path, as_json: bool, **options: Any) -> None:
    """Repeat an experiment of the paper: a table or a figure.

    The command trains and compares the rows of the table. It skips rows that earlier runs have
    finished.
    """
    if name == "table4":
        _print_table4(out, options["small"], as_json)
        return
    if data is None:
        raise click.UsageError("Missing option '--data'.")
    from pseudoquery.research.report import write_rates, write_report
    from pseudoquery.research.run import ExperimentOptions, find_experiment, run_experiment

    experiment_options = ExperimentOptions(name, data, out, **options)
    results = run_experiment(experiment_options, lambda row: click.echo(row, err=True))
    written = [f"{out / 'rates'}.md"]
    if experiment_options.learning_rate is None:
        write_report(name, find_experiment(name), results, out)
        written.insert(0, f"{out / name}.md, .json and .svg")
    write_rates(out)
    if as_json:
        click.echo(json.dumps(results))
    else:
        click.echo(f"Wrote {', '.join(written)}.")


def _print_table4(out: Path, small: bool, as_json: bool) -> None:
    """Measure the times of table 4, which trains nothing."""
    from pseudoquery.research.table4 import run_table4

    training = ("data", "model", "seeds", "rows", "learning_rate", "report")
    refuse_without_effect(training, "for table4")
    report = run_table4(out, small)
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(f"Wrote {out / 'table4'}.md and .json.")
