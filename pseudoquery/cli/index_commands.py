"""Commands that make, change, copy and check an index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pseudoquery.building.location import Location, is_address, open_index
from pseudoquery.cli.hints import print_text_hint
from pseudoquery.cli.options import (
    cluster_option,
    column_option,
    explicit_options,
    first_step_option,
    json_option,
    k_option,
    location_argument,
    location_type,
    long_option,
    model_option,
    path_type,
    preset_option,
    tokens_option,
    where_option,
)
from pseudoquery.cli.output import Skipped, format_count, print_json, report_added
from pseudoquery.encoding.precision import PRECISIONS
from pseudoquery.errors import PseudoqueryError, QueryError

on_error_option = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a record that can't be used: stop, or skip it and count it.",
)


@click.command()
@click.argument("source")
@click.option(
    "--out",
    "location",
    type=location_type,
    required=True,
    help="The folder of the new index, or the address of a new collection in Milvus.",
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
    help="The type of the numbers in the stored vectors.",
)
@tokens_option
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    show_default=True,
    help="What the encoder computes in, now and in every search. bfloat16 is faster on processors "
    "that support it; OpenVINO (an extra) is even faster on CPUs.",
)
@first_step_option
@cluster_option
@column_option
@on_error_option
@json_option
def index(
    source: str,
    location: Location,
    columns: dict[str, str],
    on_error: str,
    cluster: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make an index of the documents in SOURCE.

    SOURCE is a .jsonl, .tsv, .csv or text file; a BEIR folder; a folder of .jsonl or text files;
    a Hugging Face dataset (a saved folder, a .parquet file or folder, or hf:NAME on the Hub);
    a remote .jsonl or .parquet file or folder (s3://..., https://...); or - for JSON lines on
    standard input.

    If indexing is interrupted, run the same command again: it continues where it stopped.
    """
    from pseudoquery.building.build import build
    from pseudoquery.cli.terminal import show_progress

    settings = _index_settings(location, **options)
    skipped = Skipped(on_error)
    if cluster is None:
        batches = build(source, location, on_bad=skipped.on_bad, columns=columns, **settings)
        report_added(show_progress(batches, source), skipped, as_json)
    else:
        _index_on_cluster(cluster, source, location, skipped, as_json, columns=columns, **settings)


@click.command()
@location_argument
@click.argument("source")
@column_option
@on_error_option
@json_option
def add(
    location: Location, source: str, columns: dict[str, str], on_error: str, as_json: bool
) -> None:
    """Add the documents in SOURCE to the index in FOLDER.

    A document replaces the document in the index that has the same id.
    """
    from pseudoquery.cli.terminal import show_progress
    from pseudoquery.corpus.documents import read_documents

    skipped = Skipped(on_error)
    documents = read_documents(source, on_bad=skipped.on_bad, columns=columns)
    batches = open_index(location).add_in_batches(documents)
    report_added(show_progress(batches, source), skipped, as_json, verb="Added")


@click.command()
@location_argument
@click.argument("ids", nargs=-1, required=True)
@json_option
def delete(location: Location, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete the documents with these IDS from the index in FOLDER."""
    deleted = open_index(location).delete(ids)
    missing = [id_ for id_ in ids if id_ not in deleted]
    if as_json:
        print_json({"deleted": deleted, "missing": missing})
    elif not missing:
        click.echo(f"Deleted {format_count(len(deleted), 'document')}.")
    if missing:
        others = "document was" if len(deleted) == 1 else f"{len(deleted):,} documents were"
        done = f"the other {others} deleted" if deleted else "nothing was deleted"
        shown = ", ".join(map(repr, missing[:5]))
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        nouns = "document with the id" if len(missing) == 1 else "documents with the ids"
        raise PseudoqueryError(f"{location} has no {nouns} {shown}{more}; {done}.")


@click.command()
@location_argument
@click.argument("out", type=path_type)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["beir", "parquet"]),
    default="beir",
    show_default=True,
    help="Write a BEIR folder, or a Hugging Face dataset of Parquet files.",
)
@where_option
@click.option("--dataset", help="Also export the queries and judgements of this test collection.")
@click.option("--split", help="The split of the test collection, such as test.")
@json_option
def export(
    location: Location,
    out: Path,
    format_: Any,
    conditions: tuple[str, ...],
    dataset: str | None,
    split: str | None,
    as_json: bool,
) -> None:
    """Export the documents in FOLDER to the new folder OUT.

    `pseudoquery index OUT` makes an index of the same documents.
    """
    from pseudoquery.cli.terminal import show_status
    from pseudoquery.corpus.datasets import load_dataset
    from pseudoquery.corpus.export import JudgedSplit, export
    from pseudoquery.storage.filters import parse_filter

    if (dataset is None) != (split is None):
        raise QueryError("--dataset and --split go together; give both or neither.")
    judged = None
    if dataset is not None and split is not None:
        judged = JudgedSplit(load_dataset(dataset, split), split)
    index = open_index(location)
    where = parse_filter(conditions)
    with show_status("Exporting"):
        exported = export(index.documents(where), out, format_, judged=judged)
    if as_json:
        print_json(asdict(exported))
        return
    written = format_count(exported.documents, "document")
    if judged:
        queries = format_count(exported.queries, "query", "queries")
        written += f", {queries} and {format_count(exported.judgements, 'judgement')}"
    click.echo(f"Wrote {written} to {out}.")
    if not exported.documents:
        print_text_hint(index, where)


@click.command()
@click.argument("source", type=location_type)
@click.argument("target", type=location_type)
@first_step_option
@json_option
def copy(source: Location, target: Location, first_step: str | None, as_json: bool) -> None:
    """Copy an index between a folder and Milvus.

    One of SOURCE and TARGET is a folder, the other is the address of a collection in Milvus. The
    vectors are copied as they are; nothing is encoded again.

    If a copy to Milvus is interrupted, run the same command again: it continues where it stopped.
    """
    from pseudoquery.building.copy import copy_index
    from pseudoquery.cli.terminal import show_status

    settings = _milvus_settings(target, first_step)
    with show_status("Copying"):
        copied = copy_index(source, target, **settings)
    if as_json:
        print_json({"copied": copied})
    else:
        click.echo(f"Copied {format_count(copied, 'document')} to {target}.")


@click.command()
@location_argument
@click.option(
    "--repair", is_flag=True, help="Replace damaged vectors: encode their documents again."
)
@json_option
def verify(location: Location, repair: bool, as_json: bool) -> None:
    """Check all files, documents and vectors in FOLDER.

    Each is compared with the checksum that was stored with it.
    """
    from pseudoquery.cli.terminal import show_status

    index = open_index(location)
    repaired = 0
    with show_status("Verifying"):
        damage = problems = index.verify()
        if problems and repair:
            repaired = index.repair()
            problems = index.verify()
    if as_json:
        facts = {"ok": not problems, "problems": problems, "repaired": repaired}
        print_json(facts | ({"damage": damage} if repair else {}))
    elif not problems:
        done = f"; encoded {format_count(repaired, 'document')} again" if repaired else ""
        was = f" It was damaged: {'; '.join(damage)}." if damage else ""
        click.echo(f"{location} is sound{done}.{was}")
    if problems:
        shown = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        advice = (
            "restore it from a backup, or build it again"
            if repair
            else f"`pseudoquery verify {location} --repair` repairs damaged vectors"
        )
        raise PseudoqueryError(f"{location} is damaged: {shown}{more}; {advice}.")


@click.command()
@location_argument
@json_option
def compact(location: Location, as_json: bool) -> None:
    """Free the disk space of deleted documents in FOLDER."""
    index = open_index(location)
    before = index.info().get("bytes")  # Milvus does not say
    index.compact()
    after = index.info().get("bytes")
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    elif before is None:
        click.echo(f"Milvus has started to compact {location}.")
    else:
        click.echo(f"{location} took {before:,} bytes, and now takes {after:,}.")


def _index_settings(
    location: Location,
    preset_name: str | None,
    k: int | None,
    first_step: str | None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the settings of a new index: those of the preset, unless options change them."""
    from pseudoquery.method.presets import index_settings

    if preset_name or k:
        from pseudoquery.encoding.model import choose_representation

        settings["representation"] = choose_representation(settings["model"], preset_name, k)
    if settings["tokens"] is None:
        del settings["tokens"]
    explicit = explicit_options(["long", "tokens"]) | _milvus_settings(location, first_step)
    return settings | index_settings(preset_name) | explicit


def _milvus_settings(location: Location, first_step: str | None) -> dict[str, str]:
    """Return the settings that only an index in Milvus has; a folder refuses them."""
    if first_step and not is_address(location):
        raise QueryError("--first-step is only for an index in Milvus; leave it out for a folder.")
    return {"first_step": first_step} if first_step else {}


def _index_on_cluster(
    cluster: str, source: str, location: Location, skipped: Skipped, as_json: bool, **settings: Any
) -> None:
    from pseudoquery.cli.terminal import count_lines, show_bar
    from pseudoquery.cluster.build import build_on_cluster

    with show_bar(count_lines(source)) as advance:
        batches = build_on_cluster(
            cluster,
            source,
            location,
            on_bad=skipped.on_bad,
            on_encoded=advance,
            **settings,
        )
        report_added(batches, skipped, as_json)
