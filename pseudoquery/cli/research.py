"""The part of the command for people who do research: evaluate, mine, train."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.building.location import Location, open_index
from pseudoquery.cli.options import (
    SEARCH_SETTINGS,
    as_json,
    cluster_option,
    exact_option,
    explicit_options,
    k_option,
    location_type,
    long_option,
    mode_option,
    model_option,
    path_type,
    preset_option,
    refuse_without_effect,
    search_options,
    split_option,
)
from pseudoquery.errors import QueryError
from pseudoquery.research.tables import EXPERIMENTS

if TYPE_CHECKING:
    from pseudoquery.corpus.datasets import Dataset
    from pseudoquery.evaluation.evaluate import SearchPlan
    from pseudoquery.evaluation.measures import Comparison
    from pseudoquery.evaluation.trec_runs import Run
    from pseudoquery.search.settings import SearchSettings


@click.command()
@click.argument("dataset")
@split_option
@click.option(
    "--index", "folder", type=location_type, help="An index of the collection's documents."
)
@click.option(
    "--run", "run_file", type=path_type, help="Judge this TREC run file; nothing is searched."
)
@model_option
@preset_option
@k_option
@long_option
@mode_option
@exact_option
@search_options
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Documents per query; measures that look deeper are left out.",
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
@cluster_option
@as_json
def evaluate(dataset: str, split: str, compare: Path | None, as_json: bool, **options: Any) -> None:
    """Measure how well an index, a model or a run answers the queries of DATASET: a folder in
    BEIR's, MS MARCO's or DPR's format, or irds: and an ir_datasets id.
    """
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.evaluation.evaluate import compute_figures
    from pseudoquery.evaluation.measures import (
        MEASURES,
        average,
        compare_runs,
        measure_per_query,
        measures_within,
    )
    from pseudoquery.evaluation.trec_runs import read_run, write_run
    from pseudoquery.search.settings import check_search

    # A search may take hours, so all that can be wrong is looked at before.
    _refuse_useless(options)
    settings = _search_settings(options)
    check_search((), options["top"], options["mode"], settings)
    measures = options["measures"] or MEASURES
    measure_per_query({}, (), measures)
    searched = options["run_file"] is None
    depth = options["top"] if searched else inf
    if deeper := set(options["measures"]) - set(measures_within(options["measures"], depth)):
        raise QueryError(f"{min(deeper)} looks deeper than --top {depth} documents; raise --top.")
    for target in filter(None, (options["save_run"], options["per_query"])):
        if not target.parent.is_dir():
            raise QueryError(f"{target} can't be written: there is no folder {target.parent}.")
    loaded = load_dataset(dataset, split)
    if not loaded.qrels:
        refuse_without_effect(["measures"], "on a collection without judgements")
    other = compute_figures(read_run(compare), loaded, measures, depth) if compare else {}
    run = _searched(loaded, options, settings) if searched else read_run(options["run_file"])
    if options["save_run"]:
        write_run(run, options["save_run"])
    figures = compute_figures(run, loaded, measures, depth)
    if options["per_query"]:
        _write_per_query(figures, options["per_query"])
    _show(loaded, average(figures), compare_runs(figures, other), as_json)


@click.command()
@click.argument("config", type=path_type)
@as_json
def train(config: Path, as_json: bool) -> None:
    """Train a model as the TOML file CONFIG says; run again after a kill, it goes on."""
    from pseudoquery.training.config import read_config
    from pseudoquery.training.distributed import is_first
    from pseudoquery.training.train import train as train_model

    finished = train_model(read_config(config))
    if not is_first():
        return
    figures = json.loads((finished.parent / "figures.json").read_text())
    if as_json:
        click.echo(json.dumps({"model": str(finished), "figures": figures}))
        return
    from pseudoquery.cli.terminal import show_figures

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
@cluster_option
@as_json
def mine(
    dataset: str,
    split: str,
    target: Path,
    model: str,
    depth: int,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Find hard negatives for the queries of DATASET: documents that are ranked high, are not
    known to be right, and do not contain the answer.
    """
    from pseudoquery.cli.terminal import working
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.training.examples import make_training_set
    from pseudoquery.training.mine import mine as mine_with
    from pseudoquery.training.mine import mine_by_words
    from pseudoquery.training.negatives import write_negatives

    if model == "bm25":
        refuse_without_effect(["cluster"], "with --model bm25")
    with working("Mining"):
        lessons = [make_training_set(load_dataset(dataset, split))]
        if model == "bm25":
            negatives = mine_by_words(lessons, depth)
        else:
            from pseudoquery.encoding.model import load_model
            from pseudoquery.training.batches import tokenise_sets

            loaded = load_model(model)
            material = tokenise_sets(loaded, lessons)
            if cluster:
                from pseudoquery.cluster.search import mine_on_cluster

                negatives = mine_on_cluster(cluster, loaded, material, depth)
            else:
                negatives = mine_with(loaded, material, depth)
        write_negatives(negatives, target)
    found = sum(map(len, negatives.values()))
    if as_json:
        click.echo(json.dumps({"queries": len(negatives), "negatives": found}))
    else:
        click.echo(f"Wrote {found:,} negatives for {len(negatives):,} queries to {target}.")


def _refuse_useless(options: dict[str, Any]) -> None:
    """Refuse options that would be ignored beside others."""
    making = ("model", "preset_name", "k", "long")
    if options["run_file"]:
        if options["folder"]:
            raise QueryError("give an --index or a --run, not both.")
        useless = (*making, "mode", "exact", "top", "cluster", *SEARCH_SETTINGS)
        refuse_without_effect(useless, "with --run")
    if options["folder"]:
        refuse_without_effect(making, "with --index")
    elif options["cluster"]:
        raise QueryError(
            "--on asks an index that every machine sees: make one with `pseudoquery index`, "
            "and give it with --index."
        )
    if options["mode"] == "bm25":
        ranking = ("structure", "recall", "recall_vectors")
        refuse_without_effect((*making, *ranking), "with --mode bm25")
    if options["mode"] != "hybrid":
        refuse_without_effect(("fusion", "weight"), "without --mode hybrid")
    if options["fusion"] != "weighted":
        refuse_without_effect(["weight"], "without --fusion weighted")
    if options["recall_vectors"] is not None:
        refuse_without_effect(["recall"], "with --recall-vectors")
    if 0 < options["recall"] <= options["top"]:
        refuse_without_effect(["recall"], f"unless it exceeds --top, which is {options['top']}")


def _search_settings(options: dict[str, Any]) -> SearchSettings:
    """Search as the paper does if one of its presets is asked for, but for what is given."""
    from pseudoquery.method.presets import search_settings
    from pseudoquery.search.settings import SearchSettings

    asked = explicit_options(SEARCH_SETTINGS)
    papers = search_settings(options["preset_name"], options["k"])
    if "recall" in asked:
        papers.pop("recall_vectors", None)
    return SearchSettings(**(papers | asked))


@click.command()
@click.argument("name", type=click.Choice([*EXPERIMENTS, "table4"]))
@click.option(
    "--data",
    type=path_type,
    help="The folder with the collections' folders; table4, which measures time, needs none.",
)
@click.option("--out", type=path_type, default="results", show_default=True, help="Where to write.")
@click.option("--model", default="minilm", show_default=True, help="The encoder to start from.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Trainings per row."
)
@click.option("--row", "rows", multiple=True, help="Only this row; may be given several times.")
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Try this instead of the rows' own; it goes into rates.md, not into the table.",
)
@click.option("--report", is_flag=True, help="Train nothing; report what was trained before.")
@click.option("--small", is_flag=True, help="A short schedule for a CPU: it shows that it runs.")
@as_json
def experiment(name: str, data: Path | None, out: Path, as_json: bool, **options: Any) -> None:
    """Train and compare the rows of one of the paper's tables or figures; what was done before
    is not done again.
    """
    if name == "table4":
        _time(out, options["small"], as_json)
        return
    if data is None:
        raise click.UsageError("Missing option '--data'.")
    from pseudoquery.research.report import write_rates, write_report
    from pseudoquery.research.run import ExperimentOptions, find_experiment, run_experiment

    order = ExperimentOptions(name, data, out, **options)
    results = run_experiment(order, lambda row: click.echo(row, err=True))
    written = [f"{out / 'rates'}.md"]
    if order.learning_rate is None:
        write_report(name, find_experiment(name), results, out)
        written.insert(0, f"{out / name}.md, .json and .svg")
    write_rates(out)
    if as_json:
        click.echo(json.dumps(results))
    else:
        click.echo(f"Wrote {', '.join(written)}.")


def _time(out: Path, small: bool, as_json: bool) -> None:
    """Carry out table4, in which nothing is trained."""
    from pseudoquery.research.table4 import run_table4

    unused = ("data", "model", "seeds", "rows", "learning_rate", "report")
    refuse_without_effect(unused, "for table4")
    report = run_table4(out, small)
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(f"Wrote {out / 'table4'}.md and .json.")


def _searched(dataset: Dataset, options: dict[str, Any], settings: SearchSettings) -> Run:
    """Ask an index that is there, or one that is made for this; for words alone, none is needed."""
    from pseudoquery.cli.terminal import bar
    from pseudoquery.evaluation.evaluate import SearchPlan, search_by_words

    ask = SearchPlan(options["top"], options["mode"], options["exact"], settings)
    if options["folder"]:
        return _asked(dataset, options["folder"], ask, options["cluster"])
    if options["mode"] == "bm25":
        with bar(len(dataset.queries), "Asking") as advance:
            return search_by_words(dataset, options["top"], advance)
    with tempfile.TemporaryDirectory(prefix="pseudoquery-") as folder:
        _index(dataset, Path(folder) / "index", options)
        return _asked(dataset, Path(folder) / "index", ask)


def _index(dataset: Dataset, folder: Path, options: dict[str, Any]) -> None:
    from pseudoquery.cli.terminal import progress
    from pseudoquery.encoding.model import chosen_representation
    from pseudoquery.evaluation.evaluate import index_dataset
    from pseudoquery.method.presets import index_settings

    representation = chosen_representation(options["model"], options["preset_name"], options["k"])
    settings = index_settings(options["preset_name"]) | explicit_options(["long"])
    batches = index_dataset(
        dataset, folder, model=options["model"], representation=representation, **settings
    )
    if cut := sum(batch.cut for batch in progress(batches, dataset.source)):
        click.echo(
            f"Of the documents, {cut:,} are long and only their beginning was read; "
            "--long windows reads all.",
            err=True,
        )


def _asked(dataset: Dataset, folder: Location, ask: SearchPlan, cluster: str | None = None) -> Run:
    from pseudoquery.cli.terminal import bar
    from pseudoquery.evaluation.evaluate import search_all

    with bar(len(dataset.queries), "Asking") as advance:
        if cluster:
            from pseudoquery.cluster.search import search_on_cluster

            return search_on_cluster(cluster, folder, dataset, ask, advance)
        return search_all(open_index(folder), dataset, ask, advance)


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
    from pseudoquery.cli.terminal import show_figures

    show_figures(figures, compared)
    if not dataset.qrels:
        click.echo("The collection has no judgements, so only answer strings could be looked for.")
