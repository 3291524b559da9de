"""The paper's experiments by name: what each fixes, and that nothing else is changed by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pseudoquery.errors import ModelError
from pseudoquery.index import Index
from pseudoquery.method.presets import PRESETS, index_settings, preset, search_settings
from pseudoquery.records import Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.training.config import Config

PAPERS = [name for name in PRESETS if name.startswith("paper")]


@pytest.mark.parametrize(
    ("name", "k"),
    [("paper-passage", 4), ("paper-document", 8), ("paper-openqa", 4), ("paper", 8)],
)
def test_each_task(name: str, k: int) -> None:
    chosen = preset(name)
    assert (chosen.k, chosen.query, chosen.normalise, chosen.scale) == (k, "cls", False, 1.0)
    assert index_settings(name) == {"long": "truncate", "tokens": "none"}
    assert search_settings(name, None) == {"structure": "flat", "recall_vectors": 1000 * k}
    assert search_settings(name, 32)["recall_vectors"] == 32_000


@pytest.mark.parametrize("name", [None, *(name for name in PRESETS if name not in PAPERS)])
def test_other_presets_fix_nothing_more(name: str | None) -> None:
    assert index_settings(name) == search_settings(name, None) == search_settings(name, 4) == {}


def test_a_name_that_is_none() -> None:
    with pytest.raises(ModelError, match="no preset 'paper-music'"):
        search_settings("paper-music", None)


def test_training_is_the_papers_by_default() -> None:
    config = Config(output="", train=("x:train",))
    assert (config.learning_rate, config.batch_size, config.negatives) == (2e-6, 16, 4)
    assert config.document_tokens == 512


def test_vectors_and_not_documents_are_recalled(
    tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With R = n*k vectors of at most k a document, n documents are recalled at least."""
    monkeypatch.setattr("pseudoquery.method.presets.RECALLED", 5)
    name = "paper-passage"
    index = Index.create(
        tmp_path / "index",
        model=tiny_model_path,
        representation=preset(name),
        **index_settings(name),
    )
    index.add(Document(f"d{row}", f"the king of {row} and the queen") for row in range(40))
    settings = SearchSettings(**search_settings(name, None))
    answer = index.search("the king of 7", 5, settings=settings)
    assert 5 <= answer.candidates <= 20
