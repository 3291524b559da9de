"""The command `pseudoquery`: its subcommands, and how it reports errors.

A subcommand imports heavy libraries only when it runs: `--help` is instant.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import TracebackType

import click

from pseudoquery.cli.backup import backup, restore
from pseudoquery.cli.bench import bench
from pseudoquery.cli.calibrate import calibrate
from pseudoquery.cli.evaluate import evaluate
from pseudoquery.cli.index_commands import add, compact, copy, delete, export, index, verify
from pseudoquery.cli.options import path_type
from pseudoquery.cli.research import experiment, mine, train
from pseudoquery.cli.search_commands import explain, info, list_documents, search
from pseudoquery.cli.serve import serve
from pseudoquery.cli.training_commands import average, score, split
from pseudoquery.errors import PseudoqueryError
from pseudoquery.version import VERSION

BAD_INPUT = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="pseudoquery")
def cli() -> None:
    """Search your documents by the questions they answer.

    pseudoquery represents each document by a few vectors, its pseudo queries. Every answer says
    whether it is proven to be exact.

    A command that takes the FOLDER of an index also takes the address of a collection in Milvus:
    http://HOST:PORT/NAME. If Milvus needs a token, set MILVUS_TOKEN.
    """


@cli.command()
@click.option(
    "--folder",
    type=path_type,
    default=Path("demo-index"),
    show_default=True,
    help="The folder for the index of the demo.",
)
def demo(folder: Path) -> None:
    """Index bundled articles, ask questions, and compare figures."""
    from pseudoquery.cli.demo import run_demo

    run_demo(folder)


for _command in (
    add,
    average,
    backup,
    bench,
    calibrate,
    compact,
    copy,
    delete,
    evaluate,
    experiment,
    explain,
    export,
    index,
    info,
    list_documents,
    mine,
    restore,
    score,
    search,
    serve,
    split,
    train,
    verify,
):
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; report bad input in one sentence on stderr, with exit code 2."""
    sys.excepthook = _report_bug
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without emoji, or a file name that is not Unicode, must not end the command.
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
        click.echo("Interrupted; every change reported so far is safe.", err=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        click.echo(f"Error: {error.filename or 'the system'}: {error.strerror}.", err=True)
        sys.exit(BAD_INPUT)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Report a bug in one sentence; with PSEUDOQUERY_DEBUG=1, print the traceback instead."""
    if os.environ.get("PSEUDOQUERY_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    click.echo(
        f"Error: {kind.__name__}: {error}. This is a bug in pseudoquery: please report it with the "
        "output of the same command under PSEUDOQUERY_DEBUG=1.",
        err=True,
    )
