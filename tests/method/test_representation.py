from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from pseudoquery.errors import ModelError
from pseudoquery.method.presets import PRESETS, preset
from pseudoquery.method.representation import MOST_VECTORS, Representation

BAD: list[tuple[str, Any, str]] = [
    (
        "documents",
        "centroids",
        "pseudo-queries, cls, mean, first, learnt, random, stretches, tokens",
    ),
    ("documents", None, "pseudo-queries"),
    ("query", "first", "cls, mean, tokens"),
    ("seeding", "k-means++", "equal-interval, random, released"),
    ("append", "max", "none, cls, mean"),
    ("append", None, "none, cls, mean"),
    ("score", "sum", "softmax, max"),
    ("k", 0, "integer of at least 1"),
    ("k", -3, "integer of at least 1"),
    ("k", 2.0, "integer of at least 1"),
    ("k", "8", "integer of at least 1"),
    ("k", True, "integer of at least 1"),
    ("iterations", -1, "integer of at least 0"),
    ("iterations", None, "integer of at least 0"),
    ("scale", 0.0, "above 0"),
    ("scale", -1, "above 0"),
    ("scale", math.nan, "above 0"),
    ("scale", math.inf, "above 0"),
    ("scale", "20", "above 0"),
    ("scale", None, "above 0"),
    ("mix_mean", -0.1, "at least 0"),
    ("mix_mean", math.nan, "at least 0"),
    ("mix_mean", "half", "at least 0"),
    ("locality", -0.1, "from 0 to 100"),
    ("locality", math.nan, "from 0 to 100"),
    ("locality", math.inf, "from 0 to 100"),
    ("locality", "near", "from 0 to 100"),
    ("locality", None, "from 0 to 100"),
    ("locality", True, "from 0 to 100"),
    ("locality", 100.1, "from 0 to 100"),
    ("scale", 10**400, "above 0"),
    ("special_tokens", "false", "True or False"),
    ("special_tokens", 1, "True or False"),
    ("normalise", None, "True or False"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), BAD)
def test_bad_value_is_named(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ModelError) as caught:
        Representation(**{field: value})
    message = str(caught.value)
    assert message.startswith(f"{field} is {value!r};")
    assert allowed in message
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", 1),
        ("iterations", 0),
        ("scale", 1),
        ("mix_mean", 0),
        ("mix_mean", 2.5),
        ("locality", 0),
        ("locality", 2.5),
    ],
)
def test_smallest_and_whole_values_are_good(field: str, value: float) -> None:
    settings: dict[str, Any] = {field: value}
    assert getattr(Representation(**settings), field) == value


@pytest.mark.parametrize("extra", [{"append": "cls"}, {"append": "mean"}, {"mix_mean": 0.5}])
def test_all_tokens_exclude_append_and_mix(extra: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"^documents='tokens' .* append and mix_mean\.$"):
        Representation(documents="tokens", **extra)


def test_a_representation_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Representation().k = 3  # type: ignore[misc]


def test_settings_survive_json() -> None:
    for representation in PRESETS.values():
        settings = json.loads(json.dumps(representation.settings()))
        assert Representation(**settings) == representation


def test_the_papers_clusters_know_no_position() -> None:
    assert Representation().locality == 0
    for name in ("paper", "paper-passage", "paper-document", "paper-openqa", "released-code"):
        assert preset(name).locality == 0


def test_presets_exist() -> None:
    assert set(PRESETS) >= {
        "paper-passage",
        "paper-document",
        "paper-openqa",
        "paper",
        "released-code",
        "recommended",
        "single-vector",
        "late-interaction",
    }
    others = [one for name, one in PRESETS.items() if not name.startswith("paper")]
    assert len({preset("paper"), *others}) == len(others) + 1


def test_the_papers_tasks_differ_in_k_alone() -> None:
    document = preset("paper-document")
    assert preset("paper") == document == preset("paper-passage", k=8)
    assert preset("paper-passage") == preset("paper-openqa") == preset("paper-document", k=4)
    assert document.k == 8


def test_presets_say_what_they_are_named_after() -> None:
    paper, released = preset("paper"), preset("released-code")
    assert (paper.documents, paper.query, paper.seeding) == (
        "pseudo-queries",
        "cls",
        "equal-interval",
    )
    assert (paper.scale, paper.normalise, paper.score) == (1.0, False, "softmax")
    assert (released.seeding, released.append, released.iterations) == ("released", "cls", 20)
    recommended = preset("recommended")
    assert (recommended.documents, recommended.query, recommended.k) == (
        "pseudo-queries",
        "mean",
        16,
    )
    assert preset("single-vector").documents == "mean"
    late = preset("late-interaction")
    assert (late.documents, late.query, late.score) == ("tokens", "tokens", "max")


def test_preset_with_changes() -> None:
    changed = preset("paper", k=3, query="mean")
    assert (changed.k, changed.query, changed.scale) == (3, "mean", 1.0)
    assert preset("paper").k == 8


def test_preset_checks_its_changes() -> None:
    with pytest.raises(ModelError, match=r"^k is 0;"):
        preset("paper", k=0)


def test_unknown_preset() -> None:
    with pytest.raises(
        ModelError, match=r"^there is no preset 'papers'; choose one of paper-passage, "
    ):
        preset("papers")


def test_unknown_setting() -> None:
    with pytest.raises(ModelError, match=r"no setting 'clusters'; it has append, documents, "):
        preset("paper", clusters=8)


@pytest.mark.parametrize("k", [MOST_VECTORS + 1, 10**8, 10**20])
def test_more_vectors_than_can_be_held(k: int) -> None:
    with pytest.raises(ModelError, match=rf"^k is {k}; it must be at most {MOST_VECTORS}\.$"):
        Representation(k=k)
    assert Representation(k=MOST_VECTORS).k == MOST_VECTORS
