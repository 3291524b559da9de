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
    open_index,
)
from pseudoquery.corpus.documents import read_documents
from pseudoquery.corpus.huggingface import HUB_PREFIX
from pseudoquery.corpus.remote import is_remote
from pseudoquery.errors import CorpusError, IndexFolderError, OnBad
from pseudoquery.index import Index
from pseudoquery.records import Added
from pseudoquery.storage.protocols import Writer
from pseudoquery.storage.store import FolderStore

UNFINISHED = "unfinished_build_of"
SETTINGS = "unfinished_build_with"


def build(
    source: str,
    location: Location,
    *,
    on_bad: OnBad | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus, yielding after each committed batch; settings as for create.

    Documents that an interrupted build already holds are recognised by their content, and are
    not encoded again.
    """
    notes = build_notes(source, columns, settings)
    index = open_unfinished(source, location, notes, settings)
    documents = read_documents(source, on_bad=on_bad, columns=columns)
    # A source that can't be read should leave nothing behind, so its first document comes first.
    beginning = list(islice(documents, 1))
    if index is None:
        index = create_index(location, notes=notes, **settings)
    yield from index.add_in_batches(chain(beginning, documents), on_duplicate=on_bad or refuse)
    with index.store.writer() as writer:
        remove_build_notes(writer)
        if isinstance(index.store, FolderStore):
            FolderShards(index.store).clear()  # of a cluster that has begun this


def remove_build_notes(writer: Writer) -> None:
    """Mark an index as finished."""
    for name in (UNFINISHED, SETTINGS):
        writer.forget(name)


def refuse(error: CorpusError) -> None:
    """End a build at a record that can't be used."""
    raise error


def build_notes(
    source: str, columns: Mapping[str, str] | None, settings: Mapping[str, Any]
) -> dict[str, str]:
    """Describe a build, in notes that the index holds until the build is finished."""
    described = {**settings, "columns": dict(columns)} if columns else settings
    return {UNFINISHED: absolute_source(source), SETTINGS: settings_note(described)}


def absolute_source(source: str) -> str:
    """Name a source so that it is found from any folder."""
    is_no_path = source == "-" or source.startswith(HUB_PREFIX) or is_remote(source)
    return source if is_no_path else str(Path(source).resolve())


def settings_note(settings: Mapping[str, Any]) -> str:
    """Write settings as text, to recognise them when an interrupted build goes on."""
    plain = dict(settings)
    model, representation = plain.get("model"), plain.get("representation")
    if model is not None and not isinstance(model, str):
        plain["model"] = "in memory"  # its fingerprint is compared later
    elif model is not None and Path(model).is_dir():
        plain["model"] = str(Path(model).resolve())
    if representation is not None:
        plain["representation"] = representation.settings()
    return json.dumps(plain, sort_keys=True)


def open_unfinished(
    source: str, location: Location, notes: Mapping[str, str], settings: Mapping[str, Any]
) -> Index | None:
    """Open an index whose build was interrupted, if this is the same build."""
    if not index_exists(location):
        return None
    model = settings.get("model")
    index = open_index(location, model=None if isinstance(model, str) else model)
    with index.store.bare_snapshot() as snapshot:
        stored = {name: snapshot.note(name) for name in notes}
    unfinished = stored[UNFINISHED]
    if unfinished is None:
        raise IndexFolderError(
            f"{location} already holds a finished index; add to it with "
            f"`pseudoquery add {location} {source}`, or choose another location."
        )
    if unfinished != notes[UNFINISHED]:
        raise IndexFolderError(
            f"{location} holds an unfinished index of {unfinished}; finish it with "
            f"`pseudoquery index {unfinished} --out {location}`, or choose another location."
        )
    if stored[SETTINGS] != notes[SETTINGS]:
        raise IndexFolderError(
            f"{location} holds an index of {source} that was begun with other settings "
            f"({stored[SETTINGS]}); finish it with the same ones, or choose another location."
        )
    return index
