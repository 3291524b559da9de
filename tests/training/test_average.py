from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from pseudoquery.encoding.model import load_model, representation_of
from pseudoquery.errors import ModelError
from pseudoquery.method.presets import preset
from pseudoquery.training.average import average_models
from tests.support.command import Run
from tests.support.models import assert_one_sentence
from tests.support.training import same, weights


def write_model(source: str, folder: Path, factor: float, k: int = 3) -> str:
    """Copy a model with all weights multiplied by a factor."""
    model = load_model(source, preset("recommended", k=k), device="cpu")
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(factor)
    model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


def test_weights_are_averaged(tiny_model_path: str, tmp_path: Path) -> None:
    models = [
        write_model(tiny_model_path, tmp_path / f"{factor}", factor, k)
        for factor, k in ((2.0, 5), (3.0, 6), (7.0, 2))
    ]
    start = weights(Path(tiny_model_path))
    for shares, factor in (((1.0, 1.0, 1.0), 4.0), ((5.0, 3.0, 2.0), 3.3), ((0.5, 0.3, 0.2), 3.3)):
        target = tmp_path / f"average {shares}"
        average_models(models, shares, target)
        averaged = load_model(str(target), device="cpu")
        assert representation_of(averaged).k == 2, "the last one's"
        for name, value in averaged.named_parameters():
            torch.testing.assert_close(value.detach(), factor * start[name])
        assert list(target.rglob("*.safetensors"))
        assert not list(target.rglob("*.bin"))


def test_an_average_says_so(tiny_model_path: str, tmp_path: Path) -> None:
    trained = write_model(tiny_model_path, tmp_path / "trained", 2.0)
    target = tmp_path / "average"
    (tmp_path / "trained" / "README.md").write_text(
        "---\nlicense: mit\n---\n\n# A retrieval model\n\nIt learnt from data.\n"
    )
    average_models([tiny_model_path, trained], [0.3, 0.7], target)
    card = ModelCard.load(target / "README.md")
    assert card.data.license == "mit"
    for stated in (
        f"- 0.3 of {Path(tiny_model_path).name}\n- 0.7 of trained\n",
        "not of the average",
        "# A retrieval model\n\nIt learnt from data.",
    ):
        assert stated in card.text
    assert str(tmp_path) not in card.content
    (tmp_path / "trained" / "README.md").unlink()
    average_models([tiny_model_path, trained], [1, 1], tmp_path / "second")
    assert ModelCard.load(tmp_path / "second" / "README.md").data.get("library_name")


@pytest.mark.parametrize(
    ("names", "shares", "message"),
    [
        (["a"], [1.0], "there are 1 models and 1 weights; give at least two models"),
        (["a", "b"], [1.0], "there are 2 models and 1 weights"),
        (["a", "b"], [1.0, 0.0], r"the weights are \[1.0, 0.0\]; each must be a number above 0"),
        (["a", "b"], [1.0, float("nan")], "each must be a number above 0"),
    ],
)
def test_bad_averages(tmp_path: Path, names: list[str], shares: list[float], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        average_models(names, shares, tmp_path / "out")
    assert_one_sentence(str(error.value))
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_refused(tiny_model_path: str, tmp_path: Path) -> None:
    fewer = load_model(tiny_model_path, device="cpu")
    encoder: Any = fewer[0].auto_model
    encoder.encoder.layer = encoder.encoder.layer[:1]
    encoder.config.num_hidden_layers = 1
    fewer.save_pretrained(str(tmp_path / "fewer"), create_model_card=False)
    with pytest.raises(ModelError, match=r"the weights of fewer and of .* have different shapes"):
        average_models([str(tmp_path / "fewer"), tiny_model_path], [1, 1], tmp_path / "out")
    (tmp_path / "there").mkdir()
    with pytest.raises(ModelError, match="there exists; choose another folder"):
        average_models([tiny_model_path, tiny_model_path], [1, 1], tmp_path / "there")
    assert not list((tmp_path / "there").iterdir())


def test_the_command(run: Run, tiny_model_path: str, tmp_path: Path) -> None:
    other = write_model(tiny_model_path, tmp_path / "other", 3.0)
    ran = run("average", tiny_model_path, other, "--out", tmp_path / "equal")
    assert ran.out == f"Wrote the average of 2 models to {tmp_path / 'equal'}.\n"
    options = ["--weight", 3, "--weight", 1, "--out", tmp_path / "first", "--json"]
    assert run("average", tiny_model_path, other, *options).code == 0
    start = weights(Path(tiny_model_path))
    for folder, factor in (("equal", 2.0), ("first", 1.5)):
        for name, value in weights(tmp_path / folder).items():
            if value.is_floating_point():
                torch.testing.assert_close(value, factor * start[name])
    assert not same(weights(tmp_path / "equal"), weights(tmp_path / "first"))
    refused = run("average", tiny_model_path, "--out", tmp_path / "second")
    assert refused.code == 2
    assert "give at least two models" in refused.err
