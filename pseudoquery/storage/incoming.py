"""Documents on their way into an index: batched, each id once, and compared with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import CorpusError, ModelError, OnBad
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.token_codes import bytes_per_token
from pseudoquery.records import Added, Document
from pseudoquery.storage.protocols import Writer
from pseudoquery.storage.schema import Settings, document_checksum

BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 250_000
"""Documents are encoded and committed in batches of at most this size."""


@dataclass(frozen=True, slots=True)
class BatchChanges:
    """What a batch changes in an index."""

    documents: list[Document]
    """The new and changed documents, each id once: the last one given counts."""
    counts: Added


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


def check_vectors(
    documents: Sequence[Document],
    vectors: Sequence[DocumentVectors] | Sequence[NDArray[np.float32]],
    settings: Settings,
) -> list[DocumentVectors]:
    """Refuse documents that share an id, and vectors that don't fit the documents or the index."""
    if len({document.id for document in documents}) != len(documents):
        raise CorpusError("two of the documents have the same id; ids must be distinct.")
    if len(vectors) != len(documents):
        raise ModelError(f"there are vectors of {len(vectors)} for {len(documents)} documents.")
    encoded = [
        given if isinstance(given, DocumentVectors) else DocumentVectors(given) for given in vectors
    ]
    width = bytes_per_token(settings.tokens, settings.dimension)
    for document, made in zip(documents, encoded, strict=True):
        if made.vectors.ndim != 2 or made.vectors.shape[1] != settings.dimension:
            raise ModelError(
                f"the vectors of document {document.id!r} have the shape {made.vectors.shape}; "
                f"it should be (vectors, {settings.dimension})."
            )
        count = len(made.owners)
        lacks_tokens = width > 0 and len(made.vectors) > 0 and not count
        if lacks_tokens or len(made.codes) != width * count or made.spans.shape != (count, 2):
            raise ModelError(
                f"the tokens of document {document.id!r} are not codes of the type "
                f"{settings.tokens!r}, which this index stores; encode it with `Index.encode`."
            )
    return encoded


def find_changes(batch: list[Document], writer: Writer) -> BatchChanges:
    """Find the documents of a batch that are new or changed, and count them."""
    known = writer.known(document.id for document in batch)
    checksums = {id_: stored.checksum for id_, stored in known.items()}
    changed: dict[str, Document] = {}
    updated = unchanged = 0
    for document in batch:
        checksum = document_checksum(document)
        if checksums.get(document.id) == checksum:
            unchanged += 1
            continue
        updated += document.id in checksums
        checksums[document.id] = checksum
        changed[document.id] = document
    counts = Added(len(batch) - updated - unchanged, updated, unchanged)
    return BatchChanges(list(changed.values()), counts)


def drop_duplicates(batch: list[Document], writer: Writer, on_duplicate: OnBad) -> list[Document]:
    """Leave out documents whose id belongs to another document.

    A document that an earlier run has stored is the same one if its file's name and its line are
    the same; the run may have named the file by another path.
    """
    known = writer.known(document.id for document in batch)
    origins = {id_: stored.origin for id_, stored in known.items()}
    distinct = []
    for document in batch:
        origin = origins.setdefault(document.id, document.origin)
        if document.origin and Path(origin).name == Path(document.origin).name:
            distinct.append(document)
        else:
            on_duplicate(duplicate_id_error(document.id, document.origin, origin))
    return distinct


def duplicate_id_error(id_: str, origin: str, first_origin: str) -> CorpusError:
    """Say that a document has the id of an earlier document."""
    return CorpusError(
        f"{origin}: the id {id_!r} was already used in {first_origin}; "
        "every document needs an id of its own."
    )
