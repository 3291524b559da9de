"""The examples in the docstrings of the corpus run as they stand."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

from pseudoquery.corpus import datasets, documents, export


@pytest.mark.parametrize(
    "module", [datasets, documents, export], ids=lambda module: module.__name__
)
def test_examples_run(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed
