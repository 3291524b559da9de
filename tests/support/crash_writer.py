"""The program that the crash test kills: it changes an index for ever, saying what it has done.

Before each operation it prints a line that says what it is about to do; after the commit, the line
`done`. Its vectors are derived from the texts, so that they can be checked without a model, and
nothing heavy is imported.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.token_codes import pack_tokens
from pseudoquery.records import Document
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.writer import FolderWriter

DIMENSION = 8
SETTINGS = Settings(
    model="stub", fingerprint="stub", dimension=DIMENSION, representation={}, tokens="signs"
)
IDS = [f"document {number}" for number in range(60)]


def vectors_of(document: Document) -> NDArray[np.float32]:
    """Derive 0 to 5 vectors from a document's title and text."""
    digest = hashlib.sha256(f"{document.title}\n{document.text}".encode()).digest()
    generator = np.random.default_rng(list(digest))
    return generator.standard_normal((digest[0] % 6, DIMENSION)).astype(np.float32)


def encode(documents: Sequence[Document]) -> list[DocumentVectors]:
    """Stand in for Index.encode: a document has two tokens for each of its vectors."""
    return [_encode(document) for document in documents]


def _encode(document: Document) -> DocumentVectors:
    vectors = vectors_of(document)
    owners = np.repeat(np.arange(len(vectors)), 2)
    starts = np.arange(len(owners)) * 3
    tokens = np.repeat(vectors, 2, axis=0)
    return DocumentVectors(
        vectors, owners, np.stack([starts, starts + 2], axis=1), pack_tokens("signs", tokens)
    )


def put(writer: FolderWriter, *documents: Document) -> None:
    """Add documents with their derived vectors."""
    writer.add(documents, encode(documents))


class StoredContent(NamedTuple):
    """Everything that an index holds of a document."""

    document: Document
    vectors: list[list[float]]
    owners: list[int]
    spans: list[list[int]]
    codes: list[int]


def content(snapshot: FolderSnapshot) -> dict[str, StoredContent]:
    """Read everything that a reader can see: for each id, its document, vectors and tokens."""
    view = snapshot.view
    found = {}
    for position in np.flatnonzero(view.live):
        document = snapshot.by_ordinal(int(view.ordinals[position])).document
        layout = view.layout_of(int(position))
        found[document.id] = StoredContent(
            document,
            view.vectors_of(np.array([position])).tolist(),
            layout.owners.tolist(),
            layout.spans.tolist(),
            view.codes_of(int(position)).tolist(),
        )
    return found


def expected(document: Document) -> StoredContent:
    """Say what `content` must show for a document: its vectors and tokens as they are stored."""
    encoded = _encode(document)
    return StoredContent(
        document,
        encoded.vectors.astype(np.float16).tolist(),
        encoded.owners.tolist(),
        encoded.spans.tolist(),
        encoded.codes.tolist(),
    )


def random_document(choose: random.Random) -> Document:
    """Make a document with one of a few ids, so that most additions are updates."""
    number = choose.randrange(10**9)
    text = f"the text with the number {number} " * choose.randrange(0, 6)
    return Document(choose.choice(IDS), text, f"title {number}", {"number": number})


def random_operation(choose: random.Random) -> dict[str, Any]:
    """Choose what to do next."""
    kind = choose.choices(["add", "delete", "compact"], [6, 3, 1])[0]
    if kind == "add":
        drawn = [random_document(choose) for _ in range(choose.randrange(1, 7))]
        distinct = {document.id: document for document in drawn}
        return {"add": [asdict(document) for document in distinct.values()]}
    return {"delete": choose.sample(IDS, choose.randrange(1, 5))} if kind == "delete" else {}


def carry_out(writer: FolderWriter, operation: dict[str, Any]) -> None:
    """Change the index."""
    if "add" in operation:
        put(writer, *(Document(**fields) for fields in operation["add"]))
    elif "delete" in operation:
        writer.delete(operation["delete"])
    else:
        writer.compact()


def say(line: str) -> None:
    """Tell the test at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: str, seed: str) -> None:
    """Write until killed."""
    choose = random.Random(seed)
    with FolderStore.open(Path(folder)).writer() as writer:
        say("ready")
        while True:
            operation = random_operation(choose)
            say(json.dumps(operation))
            carry_out(writer, operation)
            say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
