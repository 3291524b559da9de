"""Write docs/commands.md, the reference of the command, from the command itself.

python docs/commands.py
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import click

from pseudoquery.cli import cli

TARGET = Path(__file__).with_suffix(".md")
HEAD = """# Commands

Every command has `--help`. A wrong input is answered with one sentence on standard error and exit
code 2. This page is written by `python docs/commands.py`, and a test compares it with the command.
"""


def main() -> None:
    """Write the page."""
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    """Describe every command, in alphabetical order."""
    shown = [name for name, command in sorted(cli.commands.items()) if not command.hidden]
    contents = " ".join(f"[{name}](#pseudoquery-{name})" for name in shown)
    wrapped = textwrap.fill(contents, 100, break_long_words=False, break_on_hyphens=False)
    return "\n".join([HEAD, f"{wrapped}\n", *(section(name) for name in shown)])


def section(name: str) -> str:
    """Describe one command: how it is called, what it does, its options."""
    command = cli.commands[name]
    context = click.Context(command, info_name=f"pseudoquery {name}")
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [f"## pseudoquery {name}\n", f"    pseudoquery {name} {pieces}\n"]
    lines += [f"{inspect.cleandoc(command.help or '')}\n"]
    rows = []
    for option in command.params:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record:
            written, meaning = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{written}` | {' '.join(meaning.split())} |")
    return "\n".join([*lines, *(["| option | |", "|---|---|", *rows, ""] if rows else [])])


if __name__ == "__main__":
    main()
