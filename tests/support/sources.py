"""Write files, and read documents from them."""

from __future__ import annotations

import gzip
from pathlib import Path

from pseudoquery.corpus.documents import read_documents
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document

GOOD = b'{"id": "good", "text": "kept"}\n'


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def read(path: Path) -> list[Document]:
    return list(read_documents(path))


def read_leniently(path: Path) -> tuple[list[Document], list[str]]:
    errors: list[CorpusError] = []
    documents = list(read_documents(path, on_bad=errors.append))
    return documents, [str(error) for error in errors]
