"""The command that measures how well documents are found."""

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
    cluster_option,
    exact_option,
    explicit_options,
    json_option,
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
    tokens_option,
)
from pseudoquery.cli.output import describe_cut
from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pseudoquery.corpus.datasets import Dataset
    from pseudoquery.evaluation.evaluate import SearchPlan
    from pseudoquery.evaluation.measures import Comparison
    from pseudoquery.evaluation.trec_runs import Run
    from pseudoquery.search.settings import SearchSettings

_INDEXING_OPTIONS = ("model", "preset_name", "k", "long", "tokens")
"""Options that only matter if the command makes an index."""


@click.command()
@click.argument("dataset")
@split_option
@click.option(
    "--index", "location", type=location_type, help="Search this index of the collection."
)
@click.option(
    "--run", "run_file", type=path_type, help="Judge this TREC run file instead of searching."
)
@model_option
@preset_option
@k_option
@long_option
@tokens_option
@mode_option
@exact_option
@search_options
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many documents to find per query. Measures that look deeper are left out.",
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    help="A measure, by its name in ir-measures. Repeat the option for several measures.",
)
@click.option("--save-run", type=path_type, help="Write the rankings to this TREC run file.")
@click.option(
    "--per-query",
    type=path_type,
    help="Write the figures of each query to this file, one JSON object per line.",
)
@click.option(
    "--compare", type=path_type, help="Compare with this TREC run file by a paired t-test."
)
@cluster_option
@json_option
def evaluate(dataset: str, split: str, compare: Path | None, as_json: bool, **options: Any) -> None:
    """Measure how well the queries of DATASET are answered.

    DATASET is a test collection: a folder in the format of BEIR, MS MARCO or DPR; irds: and an
    ir_datasets id; or squad-dev, which is bundled. An index (--index), a run (--run) or a model
    (--model) gives the answers.
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

    # A search may take hours: everything that can be wrong is checked before it begins.
    _refuse_ineffective_options(options)
    settings = _search_settings(options)
    check_search((), options["top"], options["mode"], settings)
    measures = options["measures"] or MEASURES
    measure_per_query({}, (), measures)
    searched = options["run_file"] is None
    depth = options["top"] if searched else inf
    if deeper := set(options["measures"]) - set(measures_within(options["measures"], depth)):
        raise QueryError(f"{min(deeper)} looks deeper than --top {depth}; raise --top.")
    for target in filter(None, (options["save_run"], options["per_query"])):
        if not target.parent.is_dir():
            raise QueryError(f"{target} can't be written; make the folder {target.parent} first.")
    loaded = load_dataset(dataset, split)
    if not loaded.qrels:
        refuse_without_effect(["measures"], "on a collection without judgements")
    other = compute_figures(read_run(compare), loaded, measures, depth) if compare else {}
    run = _search_queries(loaded, options, settings) if searched else read_run(options["run_file"])
    if options["save_run"]:
        write_run(run, options["save_run"])
    figures = compute_figures(run, loaded, measures, depth)
    if options["per_query"]:
        _write_per_query(figures, options["per_query"])
    _print_figures(loaded, average(figures), compare_runs(figures, other), as_json)


def _refuse_ineffective_options(options: dict[str, Any]) -> None:
    """Refuse options that change nothing beside the others."""
    if options["run_file"]:
        if options["location"]:
            raise QueryError("--index and --run exclude each other; give only one of them.")
        searching = ("mode", "exact", "top", "cluster", *SEARCH_SETTINGS)
        refuse_without_effect((*_INDEXING_OPTIONS, *searching), "with --run")
    if options["location"]:
        refuse_without_effect(_INDEXING_OPTIONS, "with --index")
    elif options["cluster"]:
        raise QueryError(
            "--on needs an index that every machine of the cluster can open; make one with "
            "`pseudoquery index`, and give it with --index."
        )
    if options["tokens"] == "none" and options["rank_by"] == "tokens":
        raise QueryError(
            "--rank-by tokens needs the tokens that --tokens none leaves out; drop one of the two."
        )
    _refuse_ineffective_settings(options)


def _refuse_ineffective_settings(options: dict[str, Any]) -> None:
    """Refuse settings of a search that change nothing beside the others."""
    if options["mode"] == "bm25":
        dense = ("structure", "recall", "recall_vectors", "rank_by", "token_depth", "vector_share")
        refuse_without_effect((*_INDEXING_OPTIONS, *dense), "with --mode bm25")
    if options["mode"] != "hybrid":
        refuse_without_effect(("fusion", "weight"), "without --mode hybrid")
    if options["fusion"] != "weighted":
        refuse_without_effect(["weight"], "without --fusion weighted")
    if options["recall_vectors"] is not None:
        refuse_without_effect(["recall"], "with --recall-vectors")
    of_tokens = ["token_depth", "vector_share"]
    if options["rank_by"] == "vectors":
        refuse_without_effect(of_tokens, "with --rank-by vectors")
    if options["tokens"] == "none":
        refuse_without_effect(of_tokens, "with --tokens none")
    for name in ("recall", "token_depth"):
        if 0 < options[name] <= options["top"]:
            refuse_without_effect([name], f"unless it exceeds --top, which is {options['top']}")


def _search_settings(options: dict[str, Any]) -> SearchSettings:
    """Return the settings of the preset, if it is one of the paper's; explicit options win."""
    from pseudoquery.method.presets import search_settings
    from pseudoquery.search.settings import SearchSettings

    explicit = explicit_options(SEARCH_SETTINGS)
    settings = search_settings(options["preset_name"], options["k"])
    if "recall" in explicit:
        settings.pop("recall_vectors", None)
    return SearchSettings(**(settings | explicit))


def _search_queries(dataset: Dataset, options: dict[str, Any], settings: SearchSettings) -> Run:
    """Search the given index or a temporary one; a search by words needs no index."""
    from pseudoquery.cli.terminal import show_bar
    from pseudoquery.evaluation.evaluate import SearchPlan, search_by_words

    plan = SearchPlan(options["top"], options["mode"], options["exact"], settings)
    if options["location"]:
        return _search_index(dataset, options["location"], plan, options["cluster"])
    if options["mode"] == "bm25":
        with show_bar(len(dataset.queries), "Searching") as advance:
            return search_by_words(dataset, options["top"], advance)
    with tempfile.TemporaryDirectory(prefix="pseudoquery-") as folder:
        _build_index(dataset, Path(folder) / "index", options)
        return _search_index(dataset, Path(folder) / "index", plan)


def _build_index(dataset: Dataset, folder: Path, options: dict[str, Any]) -> None:
    """Make an index of the collection as the options say."""
    from pseudoquery.cli.terminal import show_progress
    from pseudoquery.encoding.model import choose_representation
    from pseudoquery.evaluation.evaluate import index_dataset
    from pseudoquery.method.presets import index_settings

    representation = choose_representation(options["model"], options["preset_name"], options["k"])
    settings = index_settings(options["preset_name"]) | explicit_options(["long", "tokens"])
    batches = index_dataset(
        dataset, folder, model=options["model"], representation=representation, **settings
    )
    if cut := sum(batch.cut for batch in show_progress(batches, dataset.source)):
        click.echo(describe_cut(cut), err=True)


def _search_index(
    dataset: Dataset, location: Location, plan: SearchPlan, cluster: str | None = None
) -> Run:
    """Search for all queries, here or on a cluster."""
    from pseudoquery.cli.terminal import show_bar
    from pseudoquery.evaluation.evaluate import search_all

    with show_bar(len(dataset.queries), "Searching") as advance:
        if cluster:
            from pseudoquery.cluster.search import search_on_cluster

            return search_on_cluster(cluster, location, dataset, plan, advance)
        return search_all(open_index(location), dataset, plan, advance)


def _write_per_query(figures: dict[str, dict[str, float]], target: Path) -> None:
    """Write one JSON object per query, with the measures that the query has."""
    queries = dict.fromkeys(query for values in figures.values() for query in values)
    rows = (
        {"query": query}
        | {measure: values[query] for measure, values in figures.items() if query in values}
        for query in queries
    )
    target.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _print_figures(
    dataset: Dataset, figures: dict[str, float], comparisons: list[Comparison], as_json: bool
) -> None:
    """Print the mean of each measure and, if there is another run, how it compares."""
    if as_json:
        report: dict[str, Any] = {
            "dataset": dataset.name,
            "queries": len(dataset.queries),
            "figures": figures,
        }
        if comparisons:
            report["compared"] = [asdict(comparison) for comparison in comparisons]
        click.echo(json.dumps(report))
        return
    from pseudoquery.cli.terminal import show_figures

    show_figures(figures, comparisons)
    if not dataset.qrels:
        click.echo("The collection has no judgements; the figures only count answer strings.")
