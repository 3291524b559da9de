"""The command that learns what the scores of a model mean."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pseudoquery.cli.options import json_option, path_type
from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pseudoquery.corpus.datasets import Dataset
    from pseudoquery.index import Index


@click.command()
@click.option(
    "--judged",
    type=(path_type, str, str),
    multiple=True,
    required=True,
    metavar="INDEX DATASET SPLIT",
    help="An index of a test collection, that collection, and a split of it. Repeat the option "
    "for several collections, whose documents should answer different questions.",
)
@click.option(
    "--out",
    "target",
    type=path_type,
    show_default="relevance.json in the folder of the model",
    help="The file to write.",
)
@json_option
def calibrate(
    judged: tuple[tuple[Path, str, str], ...], target: Path | None, as_json: bool
) -> None:
    """Learn what the scores of a model mean, so that hits get a relevance from 0 to 1.

    The relevance of a hit estimates how likely it answers the question. The command searches the
    indexes by tokens for questions whose answers are known, and writes two constants to a file.
    Put into the folder of the model, every index of the model uses the file.
    """
    from pseudoquery.cli.terminal import show_bar, show_reliability
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.evaluation.calibrate import (
        FOREIGN,
        check_reliability,
        fit_constants,
        judge_collections,
    )
    from pseudoquery.index import Index
    from pseudoquery.search.relevance import Calibration
    from pseudoquery.search.settings import SearchSettings

    pairs = [(Index.open(folder), load_dataset(name, split)) for folder, name, split in judged]
    _refuse_what_does_not_fit(pairs)
    settings = pairs[0][0].settings
    path = target or _file_in_model(settings.model)
    foreign = FOREIGN if len(pairs) > 1 else 0
    total = sum(len(dataset.queries) + foreign for _, dataset in pairs)
    with show_bar(total, "Searching") as advance:
        collections = judge_collections(pairs, advance)
    calibration = Calibration(
        settings.fingerprint,
        settings.tokens,
        SearchSettings().vector_share,
        *(float(f"{constant:.4g}") for constant in fit_constants(list(collections.values()))),
    )
    reliability = check_reliability(collections)
    calibration.write(path)
    if as_json:
        figures = {name: asdict(figures) for name, figures in reliability.items()}
        click.echo(json.dumps({**asdict(calibration), "file": str(path), "reliability": figures}))
        return
    show_reliability(reliability)
    click.echo(
        f"A hit without rivals is as likely right as wrong at a score of {calibration.threshold:g}."
        f"\nWrote {path}."
    )


def _refuse_what_does_not_fit(pairs: list[tuple[Index, Dataset]]) -> None:
    """Refuse indexes that the constants could not hold for."""
    first = pairs[0][0].settings
    for index, dataset in pairs:
        settings = index.settings
        if settings.tokens == "none":
            raise QueryError(
                f"{index.location} stores no tokens, and relevance is learnt for scores by tokens; "
                "build the index again with `pseudoquery index --tokens signs`."
            )
        if (settings.fingerprint, settings.tokens) != (first.fingerprint, first.tokens):
            raise QueryError(
                f"{index.location} was made with another model or other tokens than "
                f"{pairs[0][0].location}; give indexes of one model that store tokens alike."
            )
        if not dataset.qrels:
            raise QueryError(f"{dataset.name} has no judgements; give a collection that has.")
    names = [dataset.name for _, dataset in pairs]
    if len(set(names)) != len(names):
        raise QueryError("a collection is given twice; give each once.")


def _file_in_model(model: str) -> Path:
    """Name the file in the folder of a model, if it has a folder of its own."""
    from pseudoquery.search.relevance import FILE_NAME

    if not model or not Path(model).is_dir():
        raise QueryError(
            f"the model {model!r} has no folder to write to; say with --out which file to write."
        )
    return Path(model) / FILE_NAME
