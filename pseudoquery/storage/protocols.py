"""What an index asks of any store: of a folder on disk, or of a collection in Milvus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.filters import Where
from pseudoquery.storage.schema import Settings


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as a store knows it."""

    ordinal: int
    """Ordinals grow with each document that is added or replaced, and are never used twice."""
    document: Document
    checksum: bytes
    """A hash of the document's content, to notice changes and damage."""


class KnownDocument(NamedTuple):
    """What tells whether a document that comes is new, changed or the same."""

    checksum: bytes
    origin: str


class Snapshot(Protocol):
    """The documents of an index in one state, for reading."""

    def count(self) -> int:
        """Count the documents."""

    def get(self, id: str) -> StoredDocument | None:  # noqa: A002
        """Return the document with this id, or None."""

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """Read the documents that satisfy a filter, in the order in which they were added."""

    def encoded(self, stored: StoredDocument) -> DocumentVectors | None:
        """Read what the encoder has made of a document; None if its tokens are not stored."""

    def note(self, name: str) -> str | None:
        """Return the note of this name, such as the source of an unfinished build."""


class Writer(Protocol):
    """Changes documents; what a method has done when it returns is committed."""

    def known(self, ids: Iterable[str]) -> dict[str, KnownDocument]:
        """Look up which of these documents are stored."""

    def add(self, documents: Sequence[Document], vectors: Sequence[DocumentVectors]) -> None:
        """Add documents with distinct ids, and their vectors; a known id is replaced."""

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents; returns the ids that were stored."""

    def compact(self) -> None:
        """Give the space of deleted documents back."""

    def forget(self, name: str) -> None:
        """Remove the note of this name."""


class Store(Protocol):
    """Where the documents and vectors of an index are."""

    @property
    def location(self) -> Path | str:
        """The folder, or the address of a collection."""

    @property
    def engine(self) -> str:
        """Who keeps the files: "pseudoquery", or the name of a database such as "Milvus"."""

    @property
    def settings(self) -> Settings:
        """What the index was made with."""

    def facts(self) -> dict[str, Any]:
        """Count what the store holds, and name where it is."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Read the newest committed state."""

    def bare_snapshot(self) -> AbstractContextManager[Snapshot]:
        """Read documents alone, even where vectors are damaged."""

    def writer(self) -> AbstractContextManager[Writer]:
        """Change documents."""
