"""An index of all documents, and an empty one, for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from tests.support.collection import DOCUMENTS


@pytest.fixture
def index(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    made = Index.create(tmp_path / "index", model=tiny_model)
    made.add(DOCUMENTS)
    return made


@pytest.fixture
def empty(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    return Index.create(tmp_path / "empty", model=tiny_model)
