"""Build an index from a corpus, in constant memory; run again, it goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pseudoquery.corpus import OnBad, read_documents
from pseudoquery.errors import CorpusError, IndexFolderError
from pseudoquery.index import Added, Index

UNFINISHED = "unfinished_build_of"


def build(
    source: str, folder: Path, *, on_bad: OnBad | None = None, **settings: Any
) -> Iterator[Added]:
    """Create an index of a corpus, yielding after each committed batch; settings as for create.

    Documents that an interrupted build already holds are recognised by their content, and are
    not encoded again.
    """
    index = _begin(source, folder, settings)
    documents = read_documents(source, on_bad=on_bad)
    yield from index.add_in_batches(documents, on_duplicate=on_bad or _refuse)
    with index.store.writer() as writer:
        writer.forget(UNFINISHED)


def _refuse(error: CorpusError) -> None:
    raise error


def _begin(source: str, folder: Path, settings: dict[str, Any]) -> Index:
    name = source if source == "-" else str(Path(source).resolve())
    if not (folder / "index.sqlite").exists():
        index = Index.create(folder, **settings)
        with index.store.writer() as writer:
            writer.remember(UNFINISHED, name)
        return index
    index = Index.open(folder)
    with index.store.bare_snapshot() as snapshot:
        unfinished = snapshot.remembered(UNFINISHED)
    if unfinished is None:
        raise IndexFolderError(
            f"{folder} already holds a finished index; add to it with "
            f"`pseudoquery add {folder} {source}`, or choose another folder."
        )
    if unfinished != name:
        raise IndexFolderError(
            f"{folder} holds an unfinished index of {unfinished}; finish it with "
            f"`pseudoquery index {unfinished} --out {folder}`, or choose another folder."
        )
    return index
