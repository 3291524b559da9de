"""The command `pseudoquery`: a thin skin over the library, with `--json` everywhere.

Nothing heavy is imported until a command needs it, so `--help` is instant.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import TracebackType

import click

from pseudoquery.cli.bench import bench
from pseudoquery.cli.index_commands import add, compact, copy, delete, export, index, verify
from pseudoquery.cli.options import path_type
from pseudoquery.cli.research import evaluate, experiment, mine, train
from pseudoquery.cli.search_commands import explain, info, list_documents, search
from pseudoquery.cli.serve import serve
from pseudoquery.errors import PseudoqueryError
from pseudoquery.version import VERSION

BAD_INPUT = 2
INTERRUPTED = 130


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


for _command in (
    add,
    bench,
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
    search,
    serve,
    train,
    verify,
):
    cli.add_command(_command)


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
