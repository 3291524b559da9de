"""Documents on their way into an index: batched, and each id once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pseudoquery.errors import CorpusError, OnBad
from pseudoquery.records import Document
from pseudoquery.storage.writer import Writer

BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 250_000
"""Documents are encoded and committed in batches of at most this size."""


def batch_documents(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents so that a batch fits into memory, whatever their lengths."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text) if isinstance(document.text, str) else 0
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def drop_duplicates(batch: list[Document], writer: Writer, on_duplicate: OnBad) -> list[Document]:
    """Leave out documents whose id is another's; the same one from an earlier run is no other.

    An earlier run may have named the file by another path: only its name and the line count.
    """
    origins = {id_: origin for id_, (_, origin) in writer.known(one.id for one in batch).items()}
    kept = []
    for document in batch:
        origin = origins.setdefault(document.id, document.origin)
        if document.origin and Path(origin).name == Path(document.origin).name:
            kept.append(document)
        else:
            on_duplicate(duplicate_id_error(document.id, document.origin, origin))
    return kept


def duplicate_id_error(id_: str, origin: str, by: str) -> CorpusError:
    """Say that a document at one origin has the id of a document at another."""
    return CorpusError(
        f"{origin}: the id {id_!r} was already used in {by}; every document needs an id of its own."
    )
