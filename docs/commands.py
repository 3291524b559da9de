"""Write docs/reference/commands.md, the reference of the command, from the command itself.

python docs/commands.py
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import click

from pseudoquery.cli import cli

TARGET = Path(__file__).parent / "reference" / "commands.md"
HEAD = """# Commands

Every command takes `--help`. If the input can't be used, the command prints one sentence to
standard error and exits with 2; [formats](formats.md#output-of-commands) lists all exit codes.
Wherever a command takes the FOLDER of an index, it also takes the address of a collection in
Milvus, `http://HOST:PORT/NAME`, unless it says why not.

`python docs/commands.py` writes this page, and a test compares it with the command.
"""


def main() -> None:
    """Write the page."""
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    """Describe every command, in alphabetical order, and its subcommands after it."""
    shown = [(name, own) for name, own in sorted(cli.commands.items()) if not own.hidden]
    contents = " ".join(f"[{name}](#pseudoquery-{name})" for name, _ in shown)
    wrapped = textwrap.fill(contents, 100, break_long_words=False, break_on_hyphens=False)
    sections = [text for name, own in shown for text in sections_of(name, own)]
    return "\n".join([HEAD, f"{wrapped}\n", *sections])


def sections_of(name: str, command: click.Command) -> list[str]:
    """Describe a command and, if it has any, its subcommands."""
    inner = sorted(command.commands.items()) if isinstance(command, click.Group) else []
    return [section(name, command), *(section(f"{name} {own}", sub) for own, sub in inner)]


def section(name: str, command: click.Command) -> str:
    """Describe one command: how it is called, what it does, its options."""
    context = click.Context(command, info_name=f"pseudoquery {name}")
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [f"## pseudoquery {name}\n", f"    pseudoquery {name} {pieces}\n"]
    lines += [f"{inspect.cleandoc(command.help or '')}\n"]
    rows = []
    for option in command.params:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record:
            written, meaning = (part.replace("|", "&#124;") for part in record)
            # GitHub ends a cell at a bar in backticks; MkDocs shows the backslash that escapes it.
            named = f"<code>{written}</code>" if "&" in written else f"`{written}`"
            rows.append(f"| {named} | {' '.join(meaning.split())} |")
    return "\n".join([*lines, *(["| option | meaning |", "|---|---|", *rows, ""] if rows else [])])


if __name__ == "__main__":
    main()
