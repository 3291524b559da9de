"""Build an index from a corpus, in constant memory; run again, it goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pseudoquery.corpus import OnBad, read_documents
from pseudoquery.errors import CorpusError, IndexFolderError
from pseudoquery.huggingface import PREFIX
from pseudoquery.index import Added, Index
from pseudoquery.store import plain_errors

UNFINISHED = "unfinished_build_of"
SETTINGS = "unfinished_build_with"


def build(
    source: str,
    folder: Path,
    *,
    on_bad: OnBad | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus, yielding after each committed batch; settings as for create.

    Documents that an interrupted build already holds are recognised by their content, and are
    not encoded again.
    """
    noted = {**settings, "columns": dict(columns)} if columns else settings
    asked = {UNFINISHED: _name(source), SETTINGS: _described(noted)}
    index = _unfinished(source, folder, asked, settings)
    documents = read_documents(source, on_bad=on_bad, columns=columns)
    # A source that can't be read should leave no folder behind, so its first document comes first.
    beginning = list(islice(documents, 1))
    if index is None:
        index = Index.create(folder, notes=asked, **settings)
    yield from index.add_in_batches(chain(beginning, documents), on_duplicate=on_bad or _refuse)
    with index.store.writer() as writer:
        for name in asked:
            writer.forget(name)


def _refuse(error: CorpusError) -> None:
    raise error


def _name(source: str) -> str:
    named = source == "-" or source.startswith(PREFIX)
    return source if named else str(Path(source).resolve())


def _described(settings: Mapping[str, Any]) -> str:
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


def _unfinished(
    source: str, folder: Path, asked: Mapping[str, str], settings: Mapping[str, Any]
) -> Index | None:
    """Open an index whose build was interrupted, if this is the build that it needs."""
    with plain_errors(folder):
        if not (folder / "index.sqlite").exists():
            return None
    model = settings.get("model")
    index = Index.open(folder, model=None if isinstance(model, str) else model)
    with index.store.bare_snapshot() as snapshot:
        noted = {name: snapshot.remembered(name) for name in asked}
    unfinished = noted[UNFINISHED]
    if unfinished is None:
        raise IndexFolderError(
            f"{folder} already holds a finished index; add to it with "
            f"`pseudoquery add {folder} {source}`, or choose another folder."
        )
    if unfinished != asked[UNFINISHED]:
        raise IndexFolderError(
            f"{folder} holds an unfinished index of {unfinished}; finish it with "
            f"`pseudoquery index {unfinished} --out {folder}`, or choose another folder."
        )
    if noted[SETTINGS] != asked[SETTINGS]:
        raise IndexFolderError(
            f"{folder} holds an index of {source} that was begun with other settings "
            f"({noted[SETTINGS]}); finish it with the same ones, or choose another folder."
        )
    return index
