"""Models that can't be loaded are refused in one sentence, and no foreign code runs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.encoding.model import (
    load_model,
)
from pseudoquery.errors import ModelError
from tests.support.models import assert_one_sentence, copy, save


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(str(tmp_path / "a" / "b"))
    assert "can't be loaded" in str(caught.value)
    assert_one_sentence(str(caught.value))


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give a folder with a sentence-transformers") as caught:
        load_model(str(tmp_path))
    assert_one_sentence(str(caught.value))


def test_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("weights")
    with pytest.raises(ModelError) as caught:
        load_model(str(tmp_path / "model"))
    assert_one_sentence(str(caught.value))


def damage_listing(folder: Path) -> None:
    (folder / "modules.json").write_text("{not json")


def damage_shape_of_listing(folder: Path) -> None:
    (folder / "modules.json").write_text('["0"]')


def damage_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\0" * 100)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')


def remove_encoder(folder: Path) -> None:
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(entries[1:]))


DAMAGES = [
    damage_listing,
    damage_shape_of_listing,
    damage_weights,
    remove_weights,
    damage_config,
    remove_encoder,
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("ours", [True, False])
def test_damaged_folder(tiny_model_path: str, tmp_path: Path, damage: Any, ours: bool) -> None:
    folder = copy(tiny_model_path, tmp_path)
    if ours:
        shutil.rmtree(folder)
        save(load_model(tiny_model_path), folder)
    damage(folder)
    with pytest.raises(ModelError) as caught:
        load_model(str(folder))
    assert_one_sentence(str(caught.value))
    assert repr(str(folder)) in str(caught.value)


def test_damaged_settings(tiny_model_path: str, tmp_path: Path) -> None:
    save(load_model(tiny_model_path), tmp_path)
    settings = tmp_path / "1_Pooling" / "config.json"
    config = json.loads(settings.read_text())
    settings.write_text(json.dumps({**config, "k": 0}))
    with pytest.raises(ModelError, match="k is 0"):
        load_model(str(tmp_path))
    settings.write_text(json.dumps({**config, "colour": "red"}))
    with pytest.raises(ModelError, match="colour"):
        load_model(str(tmp_path))


EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass Module: pass\n"


@pytest.mark.parametrize("ours", [True, False])
def test_foreign_class_is_refused_and_not_imported(
    tiny_model_path: str, tmp_path: Path, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    model = load_model(tiny_model_path)
    save(model, folder) if ours else shutil.copytree(tiny_model_path, folder)
    (folder / "evil_code.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(folder))
    entries = json.loads((folder / "modules.json").read_text())
    entries.insert(1, {"idx": 9, "name": "9", "path": "", "type": "evil_code.Module"})
    (folder / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(ModelError, match=r"evil_code\.Module") as caught:
        load_model(str(folder))
    assert_one_sentence(str(caught.value))
    assert "evil_code" not in sys.modules
    assert not (folder / "ran").exists()


def test_class_that_sentence_transformers_lacks(tiny_model_path: str, tmp_path: Path) -> None:
    save(load_model(tiny_model_path), tmp_path)
    entries = json.loads((tmp_path / "modules.json").read_text())
    for missing in ("sentence_transformers.no.Such", "sentence_transformers.util.Such"):
        entries[0]["type"] = missing
        (tmp_path / "modules.json").write_text(json.dumps(entries))
        with pytest.raises(ModelError, match="can't be loaded"):
            load_model(str(tmp_path))
