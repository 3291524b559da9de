"""The command `pseudoquery`: a thin skin over the library, with `--json` everywhere.

Nothing heavy is imported until a command needs it, so `--help` is instant.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from pseudoquery.building.location import Place, is_address, open_index
from pseudoquery.cli.bench import bench
from pseudoquery.cli.options import (
    as_json,
    cluster_option,
    columns_option,
    exact_option,
    first_step_option,
    folder_argument,
    given,
    k_option,
    long_option,
    mode_option,
    model_option,
    path_type,
    place_type,
    preset_option,
    search_options,
)
from pseudoquery.cli.research import evaluate, experiment, mine, train
from pseudoquery.cli.serve import serve
from pseudoquery.encoding.precision import PRECISIONS
from pseudoquery.errors import CorpusError, PseudoqueryError, QueryError
from pseudoquery.version import VERSION

if TYPE_CHECKING:
    from pseudoquery.index import Added, Index

BAD_INPUT = 2
INTERRUPTED = 130

on_error_option = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a record that can't be used: stop, or skip it and count.",
)
where_option = click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only documents whose metadata fit: year>=1990, topic=law, 'topic in law,history'. "
    "May be given several times; all must hold.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="pseudoquery")
def cli() -> None:
    """Search your documents by the questions they answer.

    Each document is represented by a few vectors, its pseudo queries, and every answer says
    whether it is proven to be exact.

    Where a command asks for the FOLDER of an index, the address of a collection in Milvus will do
    as well: http://HOST:PORT/NAME. If Milvus wants a token, set MILVUS_TOKEN.
    """


@cli.command()
@click.argument("source")
@click.option(
    "--out",
    "folder",
    type=place_type,
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
    folder: Place,
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
    settings |= index_settings(preset_name) | given(["long"]) | _in_milvus(folder, first_step)
    skipped = Skipped(on_error)
    if cluster is None:
        batches = build(source, folder, on_bad=skipped.on_bad, columns=columns, **settings)
        _report_added(_with_progress(batches, source), skipped, as_json)
    else:
        _index_on(cluster, source, folder, skipped, as_json, columns=columns, **settings)


@cli.command()
@folder_argument
@click.argument("source")
@columns_option
@on_error_option
@as_json
def add(folder: Place, source: str, columns: dict[str, str], on_error: str, as_json: bool) -> None:
    """Add the documents of SOURCE to the index in FOLDER; ones with a known id are replaced."""
    from pseudoquery.corpus.documents import read_documents

    skipped = Skipped(on_error)
    documents = read_documents(source, on_bad=skipped.on_bad, columns=columns)
    batches = open_index(folder).add_in_batches(documents)
    _report_added(_with_progress(batches, source), skipped, as_json)


@cli.command()
@folder_argument
@click.argument("ids", nargs=-1, required=True)
@as_json
def delete(folder: Place, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete the documents with these IDS."""
    deleted = open_index(folder).delete(ids)
    missing = [id_ for id_ in ids if id_ not in deleted]
    if as_json:
        _print_json({"deleted": deleted, "missing": missing})
    else:
        click.echo(f"Deleted {_count(len(deleted), 'document')}.")
    if missing:
        raise PseudoqueryError(
            f"{folder} has no document with the id {missing[0]!r}"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
            + "."
        )


@cli.command()
@folder_argument
@click.argument("query")
@click.option("--top", type=int, default=10, show_default=True, help="How many documents.")
@where_option
@exact_option
@mode_option
@search_options
@as_json
def search(
    folder: Place,
    query: str,
    top: int,
    conditions: tuple[str, ...],
    exact: bool,
    mode: Any,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the documents in FOLDER that best answer QUERY."""
    from pseudoquery.cli.terminal import show_answer, working
    from pseudoquery.search.rank import SearchSettings
    from pseudoquery.storage.filters import parse_filter

    opened = open_index(folder)
    with working("Searching"):
        answer = opened.search(
            query,
            top,
            where=parse_filter(conditions),
            exact=exact,
            mode=mode,
            settings=SearchSettings(**settings),
        )
    if as_json:
        _print_json(answer)
        return
    show_answer(opened, answer, mode)
    if len(answer.hits) < top and not conditions:
        click.echo(f"These are all that were found among {_count(len(opened), 'document')}.")


@cli.command()
@folder_argument
@click.argument("query")
@click.argument("id")
@as_json
def explain(folder: Place, query: str, id: str, as_json: bool) -> None:  # noqa: A002
    """Show which passages of the document ID answer QUERY."""
    from pseudoquery.cli.terminal import show_explanation, working

    with working("Explaining"):
        explanation = open_index(folder).explain(query, id)
    if as_json:
        _print_json(explanation)
        return
    show_explanation(explanation)


@cli.command("list")
@folder_argument
@where_option
@as_json
def list_documents(folder: Place, conditions: tuple[str, ...], as_json: bool) -> None:
    """List the documents in FOLDER, or those that fit a filter, one a line."""
    from pseudoquery.cli.terminal import CONTROLS
    from pseudoquery.storage.filters import parse_filter

    for document in open_index(folder).documents(parse_filter(conditions)):
        if as_json:
            _print_json(document)
        else:
            beginning = " ".join(f"{document.title} {document.text}".split())[:80]
            click.echo(f"{document.id.translate(CONTROLS)}\t{beginning.translate(CONTROLS)}")


@cli.command()
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
    folder: Place,
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
    from pseudoquery.corpus.export import Judged, export
    from pseudoquery.storage.filters import parse_filter

    if (dataset is None) != (split is None):
        raise QueryError("--dataset and --split go together; give both, or neither.")
    judged = None
    if dataset is not None and split is not None:
        judged = Judged(load_dataset(dataset, split), split)
    documents = open_index(folder).documents(parse_filter(conditions))
    with working("Exporting"):
        done = export(documents, out, form, judged=judged)
    if as_json:
        _print_json(done)
        return
    also = f", {done.queries:,} queries and {_count(done.judgements, 'judgement')}"
    click.echo(f"Wrote {_count(done.documents, 'document')}{also if judged else ''} to {out}.")


@cli.command()
@click.argument("source", type=place_type)
@click.argument("target", type=place_type)
@first_step_option
@as_json
def copy(source: Place, target: Place, first_step: str | None, as_json: bool) -> None:
    """Copy an index with its vectors as they are: from the folder SOURCE into the collection TARGET
    of Milvus, or from a collection into a new folder.

    If a copy to Milvus is interrupted, run the same command again: it goes on where it stopped.
    """
    from pseudoquery.cli.terminal import working
    from pseudoquery.milvus.index import copy_index

    how = _in_milvus(target, first_step)
    with working("Copying"):
        copied = copy_index(source, target, **how)
    if as_json:
        _print_json({"copied": copied})
    else:
        click.echo(f"Copied {_count(copied, 'document')} to {target}.")


@cli.command()
@folder_argument
@as_json
def info(folder: Place, as_json: bool) -> None:
    """Show facts about the index in FOLDER."""
    facts = open_index(folder).info()
    if as_json:
        _print_json(facts)
        return
    from pseudoquery.cli.terminal import show_facts

    show_facts(facts)


@cli.command()
@folder_argument
@click.option("--repair", is_flag=True, help="Make damaged vectors anew from the documents.")
@as_json
def verify(folder: Place, repair: bool, as_json: bool) -> None:
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
        _print_json({"ok": not problems, "problems": problems, "repaired": repaired})
    elif not problems:
        done = f" ({_count(repaired, 'document')} encoded again)" if repaired else ""
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


@cli.command()
@folder_argument
@as_json
def compact(folder: Place, as_json: bool) -> None:
    """Give the disk space of deleted documents in FOLDER back."""
    opened = open_index(folder)
    before = opened.info().get("bytes")  # Milvus does not say
    opened.compact()
    after = opened.info().get("bytes")
    if as_json:
        _print_json({"bytes_before": before, "bytes_after": after})
    elif before is None:
        click.echo(f"Milvus has begun to compact {folder}.")
    else:
        click.echo(f"{before:,} bytes before, {after:,} after.")


@cli.command()
@click.option(
    "--folder",
    type=path_type,
    default=Path("demo-index"),
    show_default=True,
    help="Where to make the demo's index.",
)
def demo(folder: Path) -> None:
    """Index the bundled articles and show what the method does on them."""
    from pseudoquery.cli.demo import run

    run(folder)


for _command in (bench, evaluate, experiment, mine, serve, train):
    cli.add_command(_command)


class Skipped:
    """Counts records that can't be used, and says what was wrong with the first ones."""

    SHOWN = 5

    def __init__(self, on_error: str) -> None:
        self.count = 0
        self._stop = on_error == "stop"

    def on_bad(self, error: CorpusError) -> None:
        """Raise, or tell and go on."""
        if self._stop:
            raise CorpusError(f"{error} (--on-error skip would leave such records out.)")
        self.count += 1
        if self.count <= self.SHOWN:
            click.echo(f"Skipped: {error}", err=True)
        elif self.count == self.SHOWN + 1:
            click.echo("Skipped: more, which are only counted.", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error a user can act on is one sentence on stderr and exit code 2."""
    sys.excepthook = _report_bug
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that knows no emoji, or a file name that is not Unicode, is no error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli.main(args=arguments, standalone_mode=False)
    except PseudoqueryError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; everything acknowledged so far is safe.", err=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        click.echo(f"Error: {error.filename or 'the system'}: {error.strerror}.", err=True)
        sys.exit(BAD_INPUT)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Say what happened in one sentence; developers get the traceback by setting a variable."""
    if os.environ.get("PSEUDOQUERY_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    click.echo(
        f"Error: {kind.__name__}: {error}. This is a bug in pseudoquery: please report it, with "
        "what PSEUDOQUERY_DEBUG=1 prints.",
        err=True,
    )


def _open(folder: Place) -> Index:
    return open_index(folder)


def _in_milvus(target: Place, first_step: str | None) -> dict[str, str]:
    """Return the settings that only a collection in Milvus has, as far as they were given."""
    if first_step and not is_address(target):
        raise QueryError("--first-step is for an index in Milvus; for a folder, leave it out.")
    return {"first_step": first_step} if first_step else {}


def _with_progress(batches: Iterable[Added], source: str) -> Iterable[Added]:
    from pseudoquery.cli.terminal import progress

    return progress(batches, source)


def _index_on(
    cluster: str, source: str, folder: Place, skipped: Skipped, as_json: bool, **settings: Any
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
        _report_added(batches, skipped, as_json)


def _report_added(batches: Iterable[Added], skipped: Skipped, as_json: bool) -> None:
    from pseudoquery.index import Added

    totals = dict.fromkeys(("added", "updated", "unchanged", "cut"), 0)
    for batch in batches:
        for name in totals:
            totals[name] += getattr(batch, name)
    if as_json:
        _print_json({**totals, "skipped": skipped.count})
        return
    done = Added(**totals)
    parts = [f"Indexed {_count(done.added, 'document')}"]
    parts += [f"updated {done.updated:,}"] if done.updated else []
    parts += [f"{done.unchanged:,} were already there"] if done.unchanged else []
    parts += [f"skipped {skipped.count:,}"] if skipped.count else []
    click.echo(", ".join(parts) + ".")
    if done.cut:
        click.echo(
            f"Only the beginning of {_count(done.cut, 'long document')} was read; "
            "--long windows reads all."
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Turn a record into a dictionary."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        # JSON has no minus infinity, the score of a document without vectors.
        return {name: None if one == -math.inf else one for name, one in asdict(value).items()}
    raise TypeError(f"{type(value).__name__} is not JSON")
