"""A model folder that is broken or hostile gets one sentence, before anything is encoded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pseudoquery.encoding.model import load_model, representation_for
from pseudoquery.errors import ModelError

Break = Callable[[Path], None]


@pytest.fixture
def folder(tiny_model_path: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model_path, tmp_path / "model"))


def change(file: str, **values: Any) -> Break:
    """Change some of the settings in a JSON file."""

    def change_file(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, **values}))

    return change_file


def write(file: str, content: bytes) -> Break:
    def write_file(folder: Path) -> None:
        (folder / file).write_bytes(content)

    return write_file


def pickled(content: bytes) -> Break:
    """Put a pickle in the place of the weights."""

    def replace_weights(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(content)

    return replace_weights


def change_vocabulary(change: Callable[[dict[str, int]], None]) -> Break:
    def change_file(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content["model"]["vocab"])
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return change_file


def spoil_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: torch.full_like(tensor, torch.nan) for name, tensor in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )


BROKEN: dict[str, Break] = {
    "modules.json is no JSON": write("modules.json", b"{nonsense"),
    "modules.json is a number": write("modules.json", b"5"),
    "a pickle of garbage": pickled(b"garbage" * 99),
    "an empty pickle": pickled(b""),
    "a hostile pickle": pickled(b"\x80\x04cos\nsystem\n(S'exit 1'\ntR."),
    "no heads": change("config.json", num_attention_heads=0),
    "no vocabulary": change("config.json", vocab_size=0),
    "a small vocabulary": change("config.json", vocab_size=10),
    "text for a number": change("config.json", hidden_size="many"),
    "a tokenizer that is no tokenizer": write("tokenizer.json", b"{}"),
    "a tokenizer without words": change_vocabulary(dict.clear),
    "ids that are too large": change_vocabulary(lambda words: words.update({"king": 999_999})),
    "weights that are cut": write("model.safetensors", b"\x10\0\0\0\0\0\0\0{"),
    "weights that are not numbers": spoil_weights,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_refused(folder: Path, name: str) -> None:
    BROKEN[name](folder)
    with pytest.raises(ModelError, match=r"^the model '.*' can't be loaded \(.+\); give a .*\.$"):
        load_model(str(folder), device="cpu")


def test_a_broken_list_of_modules_is_refused_before_weights_are_loaded(folder: Path) -> None:
    (folder / "modules.json").write_text("{nonsense")
    with pytest.raises(ModelError, match="can't be loaded"):
        representation_for(str(folder), k=4)
