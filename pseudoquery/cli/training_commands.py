"""Commands around a training: split a collection, score it with a teacher, average models."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pseudoquery.cli.options import json_option, path_type, split_option
from pseudoquery.cli.output import format_count


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--out", "target", type=path_type, required=True, help="The folder to write.")
@click.option(
    "--weight",
    "weights",
    type=float,
    multiple=True,
    help="How much a model counts: one option for each, in their order. By default all are equal.",
)
@json_option
def average(
    models: tuple[str, ...], target: Path, weights: tuple[float, ...], as_json: bool
) -> None:
    """Average the weights of models that were trained from the same one.

    The average has the settings of the last MODEL. With the model that a training started from as
    the first, it keeps more of what that one could do.
    """
    from pseudoquery.training.average import average_models

    average_models(models, weights or (1.0,) * len(models), target)
    if as_json:
        click.echo(json.dumps({"model": str(target)}))
    else:
        click.echo(f"Wrote the average of {format_count(len(models), 'model')} to {target}.")


@click.command()
@click.argument("dataset")
@split_option
@click.option("--model", required=True, help="The cross-encoder: a folder, or an id on the Hub.")
@click.option(
    "--negatives",
    "negatives_path",
    type=path_type,
    required=True,
    help="Score these documents too: a file that `pseudoquery mine` has written.",
)
@click.option("--out", "target", type=path_type, required=True, help="The file to write.")
@json_option
def score(
    dataset: str, split: str, model: str, negatives_path: Path, target: Path, as_json: bool
) -> None:
    """Score documents for the queries of DATASET with a cross-encoder.

    A training can then learn from the scores, as those of a teacher. Each query is scored with the
    documents that answer it, and with its hard negatives.
    """
    from pseudoquery.cli.terminal import show_status
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.training.cross_encoder import load_cross_encoder, score_pairs, write_scores
    from pseudoquery.training.examples import make_training_set
    from pseudoquery.training.negatives import read_negatives

    negatives = read_negatives(negatives_path)
    training_set = make_training_set(load_dataset(dataset, split))
    with show_status("Scoring"):
        scores = score_pairs(load_cross_encoder(model), training_set, negatives)
    write_scores(scores, target)
    count = sum(map(len, scores.values()))
    if as_json:
        click.echo(json.dumps({"queries": len(scores), "scores": count}))
    else:
        queries = format_count(len(scores), "query", "queries")
        click.echo(f"Wrote {format_count(count, 'score')} for {queries} to {target}.")


@click.command()
@click.argument("folder", type=path_type)
@click.option("--split", default="train", show_default=True, help="The split to divide.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="The share of documents that go into the dev split.",
)
@click.option("--rest", default="learn", show_default=True, help="The name of the larger split.")
@click.option("--dev", default="dev", show_default=True, help="The name of the dev split.")
@json_option
def split(folder: Path, split: str, share: float, rest: str, dev: str, as_json: bool) -> None:
    """Divide a split of the test collection FOLDER into two, by document.

    A document that answers queries of one of the two answers none of the other. The ids of the
    documents decide, so that the command makes the same splits on every machine.
    """
    from pseudoquery.training.split import split_collection

    parts = split_collection(folder, split, share, rest, dev)
    counts = {
        name: len({qrel.query_id for qrel in qrels})
        for name, qrels in zip((rest, dev), parts, strict=True)
    }
    if as_json:
        click.echo(json.dumps(counts))
    else:
        described = " and ".join(
            f"{format_count(count, 'query', 'queries')} to {folder / 'qrels' / name}.tsv"
            for name, count in counts.items()
        )
        click.echo(f"Wrote {described}.")
