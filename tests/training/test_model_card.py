from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import representation_of
from pseudoquery.method.presets import PRESETS
from pseudoquery.training.batches import tokenise_sets
from pseudoquery.training.config import Config, load_named_dataset
from pseudoquery.training.examples import hash_training_set, make_training_set
from pseudoquery.training.model_card import (
    NOT_STATED,
    CardFacts,
    collect_facts,
    make_card,
    read_dataset_licence,
    read_model_licence,
)
from tests.support.collection import write_collection


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("README.txt", "A set, CC BY 4.0.\nMade here.\n\nMore.\n", "A set, CC BY 4.0. Made here."),
        ("README.md", "---\nlicense: mit\n---\n# Title\n\nThe text.", "The text."),
        ("README.md", "# Title\nThe text.", "The text."),
        ("README.txt", "\n\n", NOT_STATED),
        ("LICENSE", "A text.", NOT_STATED),
    ],
)
def test_the_licence_is_in_the_first_paragraph(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    (tmp_path / name).write_text(content)
    assert read_dataset_licence(tmp_path) == expected
    assert read_dataset_licence(tmp_path / "missing") == NOT_STATED


def test_the_licence_of_a_base_model(tmp_path: Path) -> None:
    assert read_model_licence(tmp_path) is None
    for content, expected in (
        ("---\nlicense: apache-2.0\n---\n# Model\n", "apache-2.0"),
        ("---\ntags:\n- x\n---\n# Model\n", None),
        ("# Model\n", None),
        ("---\n: : [\n---\n", None),
    ):
        (tmp_path / "README.md").write_text(content)
        assert read_model_licence(tmp_path) == expected


def test_a_card_states_everything(
    tmp_path: Path, tiny_model: MultiVectorEncoder, tiny_model_path: str
) -> None:
    data = write_collection(tmp_path / "set")
    (data / "README.txt").write_text("Made up, CC0.\n")
    config = Config(
        str(tmp_path / "out"),
        (f"{data}:train",),
        (f"{data}:dev",),
        tiny_model_path,
        teacher=str(tmp_path / "teacher"),
        epochs=7.0,
        start_weight=0.25,
        loss={"budgets": [2, 4], "anchor": 1.0, "anchor_model": str(tmp_path / "anchor")},
        weights={"set:train": 0.5},
    )
    training_set = make_training_set(load_named_dataset(config.train[0]))
    figures = {f"{data}:dev": {"RR@10": 0.12345, "nDCG@10": 1.0}}
    facts = collect_facts(config, tokenise_sets(tiny_model, [training_set]), tiny_model, figures)
    path = tmp_path / "README.md"
    path.write_text(make_card(facts))
    card = ModelCard.load(path)
    assert card.data.library_name == "sentence-transformers"
    assert {"sentence-transformers", "pseudoquery"} <= set(card.data.tags or ())
    assert card.data.license is None
    assert card.data.base_model is None, "a folder is no model of the Hub"
    for stated in (
        f"Base model: {Path(tiny_model_path).name}, licence: not stated.",
        f"| set:train | 12 | 24 | {hash_training_set(training_set)} |",
        "- set:train: Made up, CC0.",
        "| set | RR@10 | nDCG@10 |",
        "| set:dev | 12.35 | 100.00 |",
        "| k | 4 |",
        "| epochs | 7.0 |",
        "| teacher | teacher |",
        "up to 4 pseudo query embeddings each",
        "averages: 0.25 of those that the training started from, and 0.75 of those",
        "| loss.budgets | [2, 4] |",
        "| loss.anchor_model | anchor |",
        "| weights.set:train | 0.5 |",
    ):
        assert stated in card.text
    assert str(tmp_path) not in card.content, "no paths of this machine"


def test_the_default_model_and_models_of_the_hub(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    data = write_collection(tmp_path / "set")
    tokenised = tokenise_sets(tiny_model, [make_training_set(load_named_dataset(f"{data}:train"))])
    for name, base, licence in (
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2", "apache-2.0"),
        ("someone/model", "someone/model", None),
    ):
        config = Config("out", (f"{data}:train",), model=name)
        text = make_card(collect_facts(config, tokenised, tiny_model, {}))
        card = ModelCard(text)
        assert (card.data.get("base_model"), card.data.get("license")) == (base, licence)
        assert f"Base model: {base}" in text
        assert "Nothing was evaluated." in text
        assert "averages" not in text
        assert "- set:train: not stated" in text


@pytest.mark.parametrize("name", PRESETS)
def test_every_representation_has_a_card(name: str) -> None:
    facts = CardFacts("base", None, None, PRESETS[name], (), {}, {})
    assert ModelCard(make_card(facts)).data.get("library_name") == "sentence-transformers"


def test_the_kind_of_vectors_is_named(tiny_model: MultiVectorEncoder) -> None:
    facts = CardFacts("base|x", None, "mit", representation_of(tiny_model), (), {"a|b": "c\nd"}, {})
    text = make_card(facts)
    assert "| a\\|b | c d |" in text
    assert "license: mit" in text


def test_only_measures_that_all_sets_have_are_told() -> None:
    figures = {"a": {"RR@10": 0.5, "answer@1": 0.25}, "b": {"RR@10": 0.75}}
    card = make_card(CardFacts("base", None, None, PRESETS["recommended"], (), {}, figures))
    assert "| set | RR@10 |" in card
    assert "| a | 50.00 |\n| b | 75.00 |" in card
