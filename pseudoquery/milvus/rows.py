"""Documents as rows of a collection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pseudoquery.milvus.filters import one_of
from pseudoquery.records import Document
from pseudoquery.storage.protocols import StoredDocument

PIECE = 8_000
"""Characters of a document's content in one row, so that an answer of few rows is not too long."""
_Item = TypeVar("_Item")
SETTINGS_ROW, NOTE_ROW = -1, -2
"""Positions (Milvus's field `place`) of rows that are no documents."""
DOCUMENT_FIELDS = ["document", "version", "place", "rows", "is_vector", "content"]


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A stored document and its vectors (k, dim); there are none if only texts are read."""

    stored: StoredDocument
    vectors: NDArray[np.float32]

    @property
    def order(self) -> tuple[int, str]:
        """What documents are sorted by: the order in which they were added."""
        return self.stored.ordinal, self.stored.document.id


def split_content(document: Document) -> list[str]:
    """Write a document as JSON, in pieces that fit into a row each."""
    content = json.dumps(
        [document.title, document.text, dict(document.metadata), document.origin],
        ensure_ascii=False,
    )
    return [content[start : start + PIECE] for start in range(0, len(content), PIECE)]


def documents_expression(ids: Sequence[str]) -> str:
    """Select the rows of documents, but not those of settings and notes."""
    return both_expressions("place >= 0", one_of("document", ids))


def note_expression(name: str) -> str:
    """Select the row of one note."""
    return both_expressions(f"place == {NOTE_ROW}", one_of("document", [name]))


def both_expressions(first: str, second: str) -> str:
    """Join two expressions by `and`; an empty one says nothing."""
    return f"{first} and ({second})" if second else first


def in_groups(items: Iterable[_Item], count: int) -> Iterator[tuple[_Item, ...]]:
    """Divide items into groups of `count`."""
    rest = iter(items)
    while group := tuple(islice(rest, count)):
        yield group
