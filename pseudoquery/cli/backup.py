"""Commands that save an index in one file, and make an index of such a file again."""

from __future__ import annotations

from pathlib import Path

import click

from pseudoquery.cli.options import json_option, path_type
from pseudoquery.cli.output import format_count, print_json


@click.command()
@click.argument("folder", type=path_type)
@click.argument("file", type=path_type)
@json_option
def backup(folder: Path, file: Path, as_json: bool) -> None:
    """Save the index in FOLDER in the new FILE.

    FILE holds one committed state, with checksums. Others may search the index and change it
    meanwhile. The model is not part of it.
    """
    from pseudoquery.cli.terminal import show_status
    from pseudoquery.storage.backup import write_backup
    from pseudoquery.storage.store import FolderStore

    with show_status("Saving"):
        saved = write_backup(FolderStore.open(folder), file)
    if as_json:
        print_json({"documents": saved.documents, "bytes": saved.bytes})
    else:
        click.echo(f"Saved {format_count(saved.documents, 'document')} in {file}.")


@click.command()
@click.argument("file", type=path_type)
@click.argument("folder", type=path_type)
@json_option
def restore(file: Path, folder: Path, as_json: bool) -> None:
    """Make the index in FILE, which `pseudoquery backup` wrote, again in the new FOLDER.

    Every byte is compared with its checksum, and the index is verified, before FOLDER appears.
    """
    from pseudoquery.cli.terminal import show_status
    from pseudoquery.storage.backup import restore_backup

    with show_status("Restoring"):
        restored = restore_backup(file, folder)
    if as_json:
        print_json({"documents": restored.documents, "bytes": restored.bytes})
    else:
        documents = format_count(restored.documents, "document")
        click.echo(f"Restored {documents} in {folder}; the index is sound.")
