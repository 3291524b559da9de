"""Commands that make and change an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pseudoquery.building.location import Location, is_address, open_index
from pseudoquery.cli.options import (
    as_json,
    cluster_option,
    columns_option,
    explicit_options,
    first_step_option,
    folder_argument,
    k_option,
    location_type,
    long_option,
    model_option,
    path_type,
    preset_option,
    where_option,
)
from pseudoquery.cli.output import Skipped, count_of, print_json, report_added, with_progress
from pseudoquery.encoding.precision import PRECISIONS
from pseudoquery.errors import PseudoqueryError, QueryError

on_error_option = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a record that can't be used: stop, or skip it and count.",
)


@click.command()
@click.argument("source")
@click.option(
    "--out",
    "folder",
    type=location_type,
    required=True,
    help="The folder to make the index in, or the address of a new collection in Milvus.",
)
@model_option
@preset_option
@k_option
@long_option
@click.option(
    "--vector-type",
    type=click.Choice(["float16", "float32", "int8"]),
    default="float16",
    show_default=True,
    help="How vectors are stored.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    show_default=True,
    help="What the encoder computes in, now and whenever the index is asked; bfloat16 is faster on "
    "processors made for it, and OpenVINO (an extra) faster still on CPUs.",
)
@first_step_option
@cluster_option
@columns_option
@on_error_option
@as_json
def index(
    source: str,
    folder: Location,
    preset_name: str | None,
    k: int | None,
    first_step: str | None,
    columns: dict[str, str],
    on_error: str,
    cluster: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make an index of SOURCE: a .jsonl, .tsv, .csv or text file, a BEIR folder, a folder of .jsonl
    or of text files, a Hugging Face dataset (a saved folder, a .parquet file or folder, or hf:NAME
    for one on the Hub), .jsonl or .parquet at an address (s3://..., https://...), or - for JSON
    lines on standard input.

    If it is interrupted, run the same command again: it goes on where it stopped.
    """
    from pseudoquery.building.build import build
    from pseudoquery.method.presets import index_settings

    if preset_name or k:
        from pseudoquery.encoding.model import chosen_representation

        settings["representation"] = chosen_representation(settings["model"], preset_name, k)
    settings |= (
        index_settings(preset_name) | explicit_options(["long"]) | _in_milvus(folder, first_step)
    )
    skipped = Skipped(on_error)
    if cluster is None:
        batches = build(source, folder, on_bad=skipped.on_bad, columns=columns, **settings)
        report_added(with_progress(batches, source), skipped, as_json)
    else:
        _index_on(cluster, source, folder, skipped, as_json, columns=columns, **settings)


@click.command()
@folder_argument
@click.argument("source")
@columns_option
@on_error_option
@as_json
def add(
    folder: Location, source: str, columns: dict[str, str], on_error: str, as_json: bool
) -> None:
    """Add the documents of SOURCE to the index in FOLDER; ones with a known id are replaced."""
    from pseudoquery.corpus.documents import read_documents

    skipped = Skipped(on_error)
    documents = read_documents(source, on_bad=skipped.on_bad, columns=columns)
    batches = open_index(folder).add_in_batches(documents)
    report_added(with_progress(batches, source), skipped, as_json)


@click.command()
@folder_argument
@click.argument("ids", nargs=-1, required=True)
@as_json
def delete(folder: Location, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete the documents with these IDS."""
    deleted = open_index(folder).delete(ids)
    missing = [id_ for id_ in ids if id_ not in deleted]
    if as_json:
        print_json({"deleted": deleted, "missing": missing})
    else:
        click.echo(f"Deleted {count_of(len(deleted), 'document')}.")
    if missing:
        raise PseudoqueryError(
            f"{folder} has no document with the id {missing[0]!r}"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
            + "."
        )


@click.command()
@folder_argument
@click.argument("out", type=path_type)
@click.option(
    "--format",
    "form",
    type=click.Choice(["beir", "parquet"]),
    default="beir",
    show_default=True,
    help="A BEIR folder, or a Hugging Face dataset of Parquet files.",
)
@where_option
@click.option("--dataset", help="A test collection whose queries and judgements to write as well.")
@click.option("--split", help="The collection's split, such as test.")
@as_json
def export(
    folder: Location,
    out: Path,
    form: Any,
    conditions: tuple[str, ...],
    dataset: str | None,
    split: str | None,
    as_json: bool,
) -> None:
    """Write the documents in FOLDER into the new folder OUT, for other programs.

    `pseudoquery index OUT` makes an index of the same documents.
    """
    from pseudoquery.cli.terminal import working
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.corpus.export import JudgedSplit, export
    from pseudoquery.storage.filters import parse_filter

    if (dataset is None) != (split is None):
        raise QueryError("--dataset and --split go together; give both, or neither.")
    judged = None
    if dataset is not None and split is not None:
        judged = JudgedSplit(load_dataset(dataset, split), split)
    documents = open_index(folder).documents(parse_filter(conditions))
    with working("Exporting"):
        done = export(documents, out, form, judged=judged)
    if as_json:
        print_json(done)
        return
    also = f", {done.queries:,} queries and {count_of(done.judgements, 'judgement')}"
    click.echo(f"Wrote {count_of(done.documents, 'document')}{also if judged else ''} to {out}.")


@click.command()
@click.argument("source", type=location_type)
@click.argument("target", type=location_type)
@first_step_option
@as_json
def copy(source: Location, target: Location, first_step: str | None, as_json: bool) -> None:
    """Copy an index with its vectors as they are: from the folder SOURCE into the collection TARGET
    of Milvus, or from a collection into a new folder.

    If a copy to Milvus is interrupted, run the same command again: it goes on where it stopped.
    """
    from pseudoquery.building.copy import copy_index
    from pseudoquery.cli.terminal import working

    how = _in_milvus(target, first_step)
    with working("Copying"):
        copied = copy_index(source, target, **how)
    if as_json:
        print_json({"copied": copied})
    else:
        click.echo(f"Copied {count_of(copied, 'document')} to {target}.")


@click.command()
@folder_argument
@click.option("--repair", is_flag=True, help="Make damaged vectors anew from the documents.")
@as_json
def verify(folder: Location, repair: bool, as_json: bool) -> None:
    """Check every file, document and vector in FOLDER against its checksum."""
    from pseudoquery.cli.terminal import working

    opened = open_index(folder)
    repaired = 0
    with working("Verifying"):
        problems = opened.verify()
        if problems and repair:
            repaired = opened.repair()
            problems = opened.verify()
    if as_json:
        print_json({"ok": not problems, "problems": problems, "repaired": repaired})
    elif not problems:
        done = f" ({count_of(repaired, 'document')} encoded again)" if repaired else ""
        click.echo(f"{folder} is sound{done}.")
    if problems:
        shown = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        advice = (
            "restore it from a backup, or build it again"
            if repair
            else f"`pseudoquery verify {folder} --repair` makes damaged vectors anew"
        )
        raise PseudoqueryError(f"{folder} is damaged: {shown}{more}; {advice}.")


@click.command()
@folder_argument
@as_json
def compact(folder: Location, as_json: bool) -> None:
    """Give the disk space of deleted documents in FOLDER back."""
    opened = open_index(folder)
    before = opened.info().get("bytes")  # Milvus does not say
    opened.compact()
    after = opened.info().get("bytes")
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    elif before is None:
        click.echo(f"Milvus has begun to compact {folder}.")
    else:
        click.echo(f"{before:,} bytes before, {after:,} after.")


def _in_milvus(target: Location, first_step: str | None) -> dict[str, str]:
    """Return the settings that only a collection in Milvus has, as far as they were given."""
    if first_step and not is_address(target):
        raise QueryError("--first-step is for an index in Milvus; for a folder, leave it out.")
    return {"first_step": first_step} if first_step else {}


def _index_on(
    cluster: str, source: str, folder: Location, skipped: Skipped, as_json: bool, **settings: Any
) -> None:
    from pseudoquery.cli.terminal import bar, line_count
    from pseudoquery.cluster.build import build_on

    with bar(line_count(source)) as advance:
        batches = build_on(
            cluster,
            source,
            folder,
            on_bad=skipped.on_bad,
            on_encoded=advance,
            **settings,
        )
        report_added(batches, skipped, as_json)
