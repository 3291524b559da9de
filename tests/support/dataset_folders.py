"""Make test collections, read them, and check what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

Make = Callable[..., Path]


def refused(folder: Path | str, split: str, *words: str) -> None:
    """Check that the error is one sentence that says where, and ends."""
    with pytest.raises(CorpusError) as raised:
        load_dataset(str(folder), split)
    message = str(raised.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message


def content(dataset: Dataset) -> tuple[list[Document], list[Query], list[Qrel]]:
    return list(dataset.documents()), list(dataset.queries), list(dataset.qrels)


def gzipped(files: dict[str, Any]) -> dict[str, Any]:
    """Give every file the name that makes the fixture gzip it."""
    return {f"{name}.gz": content for name, content in files.items()}
