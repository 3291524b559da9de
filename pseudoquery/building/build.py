"""Build an index from a corpus, in constant memory; run again, it goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pseudoquery.building.folder_shards import FolderShards
from pseudoquery.building.location import (
    Location,
    create_index,
    index_exists,
    is_address,
    open_index,
)
from pseudoquery.corpus.documents import read_documents
from pseudoquery.corpus.huggingface import HUB_PREFIX
from pseudoquery.corpus.remote import is_remote
from pseudoquery.errors import CorpusError, IndexFolderError, OnBad
from pseudoquery.index import Index
from pseudoquery.records import Added
from pseudoquery.storage.writer import Writer

UNFINISHED = "unfinished_build_of"
SETTINGS = "unfinished_build_with"


def build(
    source: str,
    place: Location,
    *,
    on_bad: OnBad | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus, yielding after each committed batch; settings as for create.

    Documents that an interrupted build already holds are recognised by their content, and are
    not encoded again.
    """
    asked = build_notes(source, columns, settings)
    index = unfinished_documents(source, place, asked, settings)
    documents = read_documents(source, on_bad=on_bad, columns=columns)
    # A source that can't be read should leave nothing behind, so its first document comes first.
    beginning = list(islice(documents, 1))
    if index is None:
        index = create_index(place, notes=asked, **settings)
    yield from index.add_in_batches(chain(beginning, documents), on_duplicate=on_bad or refuse)
    with index.store.writer() as writer:
        finish(writer)
        if not is_address(place):
            FolderShards(index.store).clear()  # of a cluster that has begun this


def finish(writer: Writer) -> None:
    """Let an index be one that is no longer being built."""
    for name in (UNFINISHED, SETTINGS):
        writer.forget(name)


def refuse(error: CorpusError) -> None:
    """Let a record that can't be used end a build."""
    raise error


def build_notes(
    source: str, columns: Mapping[str, str] | None, settings: Mapping[str, Any]
) -> dict[str, str]:
    """Say which build this is, for the index to remember until it is finished."""
    noted = {**settings, "columns": dict(columns)} if columns else settings
    return {UNFINISHED: absolute(source), SETTINGS: settings_note(noted)}


def absolute(source: str) -> str:
    """Name a source so that it is found from any folder."""
    named = source == "-" or source.startswith(HUB_PREFIX) or is_remote(source)
    return source if named else str(Path(source).resolve())


def settings_note(settings: Mapping[str, Any]) -> str:
    """Write settings down, to know them again when an interrupted build goes on."""
    plain = dict(settings)
    model, representation = plain.get("model"), plain.get("representation")
    if model is not None and not isinstance(model, str):
        plain["model"] = "in memory"  # its fingerprint is compared later
    elif model is not None and Path(model).is_dir():
        plain["model"] = str(Path(model).resolve())
    if representation is not None:
        plain["representation"] = representation.settings()
    return json.dumps(plain, sort_keys=True)


def unfinished_documents(
    source: str, place: Location, asked: Mapping[str, str], settings: Mapping[str, Any]
) -> Index | None:
    """Open an index whose build was interrupted, if this is the build that it needs."""
    if not index_exists(place):
        return None
    model = settings.get("model")
    index = open_index(place, model=None if isinstance(model, str) else model)
    with index.store.bare_snapshot() as snapshot:
        noted = {name: snapshot.remembered(name) for name in asked}
    unfinished = noted[UNFINISHED]
    if unfinished is None:
        raise IndexFolderError(
            f"{place} already holds a finished index; add to it with "
            f"`pseudoquery add {place} {source}`, or choose another place."
        )
    if unfinished != asked[UNFINISHED]:
        raise IndexFolderError(
            f"{place} holds an unfinished index of {unfinished}; finish it with "
            f"`pseudoquery index {unfinished} --out {place}`, or choose another place."
        )
    if noted[SETTINGS] != asked[SETTINGS]:
        raise IndexFolderError(
            f"{place} holds an index of {source} that was begun with other settings "
            f"({noted[SETTINGS]}); finish it with the same ones, or choose another place."
        )
    return index
