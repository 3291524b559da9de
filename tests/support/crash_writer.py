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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.records import Document
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.writer import FolderWriter

DIMENSION = 8
SETTINGS = Settings(model="stub", fingerprint="stub", dimension=DIMENSION, representation={})
IDS = [f"document {number}" for number in range(60)]


def vectors_of(document: Document) -> NDArray[np.float32]:
    """Derive 0 to 5 vectors from a document's title and text."""
    digest = hashlib.sha256(f"{document.title}\n{document.text}".encode()).digest()
    generator = np.random.default_rng(list(digest))
    return generator.standard_normal((digest[0] % 6, DIMENSION)).astype(np.float32)


def encode(documents: Sequence[Document]) -> tuple[list[NDArray[np.float32]], int]:
    """Stand in for Index.encode."""
    return [vectors_of(document) for document in documents], 0


def put(writer: FolderWriter, *documents: Document) -> None:
    """Add documents with their derived vectors."""
    writer.add(documents, encode(documents)[0])


def content(snapshot: FolderSnapshot) -> dict[str, tuple[Document, list[list[float]]]]:
    """Read everything that a reader can see: for each id, its document and its vectors."""
    view = snapshot.view
    found = {}
    for position in np.flatnonzero(view.live):
        document = snapshot.by_ordinal(int(view.ordinals[position])).document
        found[document.id] = (document, view.vectors_of(np.array([position])).tolist())
    return found


def expected(document: Document) -> tuple[Document, list[list[float]]]:
    """Say what `content` must show for a document: its vectors as they are stored."""
    return document, vectors_of(document).astype(np.float16).tolist()


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
