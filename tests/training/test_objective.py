"""The loss over several kinds of vectors, all from one pass of the encoder."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.token_cache import tokenise
from pseudoquery.encoding.windowed_encoder import collate
from pseudoquery.method.presets import preset
from pseudoquery.training.loss import CachedRankingLoss, Guides, RankingLoss
from pseudoquery.training.loss_settings import LossSettings
from pseudoquery.training.objective import ANCHORED, TokenObjective, draw_budget, make_objective
from pseudoquery.training.ranking_losses import Distillation, contrastive_loss
from pseudoquery.training.teacher import Teacher
from pseudoquery.training.token_views import straight_through_signs
from tests.conftest import WORDS

EVERY_BUDGET = LossSettings((2, 3, 4), 0.7, 0.5, 2.0, 3.0, anchor=5.0)


def columns(model: MultiVectorEncoder, step: int = 0) -> tuple[list[dict[str, Any]], Any]:
    """Queries and documents, one of which is longer than a window, and one empty."""
    queries = ["who saw the king", "where is the river", "what about the moon", "who is king"]
    documents = [f"it was about the {name} and more" for name in ("king", "river", "moon")] * 2
    documents[4] += " and " + " ".join(WORDS.split()[:80])
    documents[5] = ""
    features = [
        collate(tokenise(model, queries, "query")),
        collate(tokenise(model, documents, "document")),
    ]
    label = {
        "documents": torch.arange(6),
        "positives": torch.tensor([0, 1, 2, 0]),
        "known": torch.tensor([[0], [1], [2], [0]]),
        "step": torch.tensor(step),
    }
    return features, label


def gradients(model: MultiVectorEncoder) -> dict[str, Tensor]:
    return {
        name: value.grad.clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }


def learn(
    loss: RankingLoss | CachedRankingLoss, model: MultiVectorEncoder, step: int = 0
) -> tuple[float, dict[str, Tensor]]:
    """The loss of the batch above, and its gradient."""
    features, label = columns(model, step)
    model.zero_grad()
    value = loss([dict(texts) for texts in features], label)
    torch.autograd.backward(value)
    return value.item(), gradients(model)


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert any(value.abs().max() > 0 for value in expected.values())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)


@pytest.fixture
def model(tiny_model_path: str) -> MultiVectorEncoder:
    return load_model(tiny_model_path, preset("recommended", k=3), device="cpu").eval()


@pytest.fixture
def guides(tiny_model_path: str) -> Guides:
    """Other models than the one above: a teacher that compares tokens, and an anchor."""
    late = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
    other = load_model(tiny_model_path, ANCHORED, device="cpu")
    with torch.no_grad():
        for value in other.parameters():
            value.mul_(1.2)
    return Guides(Teacher(late), Teacher(other))


def test_without_a_table_the_loss_is_what_it_was(model: MultiVectorEncoder) -> None:
    assert not isinstance(make_objective(model), TokenObjective)
    assert isinstance(make_objective(model, LossSettings(tokens=1.0)), TokenObjective)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_one_budget_is_the_loss_of_a_model_with_that_k(
    tiny_model_path: str, model: MultiVectorEncoder, k: int
) -> None:
    other = load_model(tiny_model_path, preset("recommended", k=k), device="cpu").eval()
    expected, expected_gradient = learn(RankingLoss(other, make_objective(other)), other)
    objective = make_objective(model, LossSettings(budgets=(k,)))
    loss = RankingLoss(model, objective)
    found, gradient = learn(loss, model)
    assert found == expected, "to the bit"
    for name, value in expected_gradient.items():
        torch.testing.assert_close(gradient[name], value, rtol=1e-5, atol=1e-7)
    assert pooling_of(model).representation.k == 3, "the model keeps its own"
    assert set(loss.statistics) == {"max_r", "var_r", "loss_vectors"}


def slow_token_loss(model: MultiVectorEncoder, scale: float, signs: bool) -> float:
    """MaxSim pair by pair, from what the model makes of single texts."""
    features, label = columns(model)
    model = load_like(model)
    with torch.no_grad():
        embedded = [
            model(dict(texts), task=task)
            for texts, task in zip(features, ("query", "document"), strict=True)
        ]
    sides = []
    for outputs in embedded:
        words = outputs["attention_mask"].bool() & ~outputs["special_tokens_mask"].bool()
        sides.append(
            [values[mask] for values, mask in zip(outputs["token_embeddings"], words, strict=True)]
        )
    scores = torch.full((len(sides[0]), len(sides[1])), -torch.inf)
    for row, query in enumerate(sides[0]):
        for column, document in enumerate(sides[1]):
            if len(document):
                kept = straight_through_signs(document) if signs else document
                scores[row, column] = scale * (query @ kept.T).amax(dim=1).sum()
    return float(contrastive_loss(scores, label["positives"]))


def load_like(model: MultiVectorEncoder) -> MultiVectorEncoder:
    """The same encoder as one of late interaction."""
    pooling_of(model).representation = preset("late-interaction")
    return model


@pytest.mark.parametrize("part", ["tokens", "signs"])
def test_maxsim_leaves_special_tokens_out(model: MultiVectorEncoder, part: str) -> None:
    weight: dict[str, Any] = {part: 1.0}
    settings = LossSettings(vectors=0.0, token_scale=1.5, **weight)
    found, gradient = learn(RankingLoss(model, make_objective(model, settings)), model)
    assert any(value.any() for value in gradient.values())
    assert found == pytest.approx(slow_token_loss(model, 1.5, part == "signs"), rel=1e-5)


def test_the_loss_is_the_weighted_sum_of_its_parts(
    model: MultiVectorEncoder, guides: Guides
) -> None:
    """Of the loss and, as it is linear, of the gradient."""
    whole = RankingLoss(model, make_objective(model, EVERY_BUDGET), guides)
    total, gradient = learn(whole, model)
    weights = {"vectors": 0.7, "tokens": 0.5, "signs": 2.0, "anchor": 5.0}
    logged = {name: float(whole.statistics[f"loss_{name}"]) for name in weights}
    assert all(value > 0 for value in logged.values())
    assert len(set(logged.values())) == 4
    expected = sum(weight * logged[name] for name, weight in weights.items())
    assert total == pytest.approx(expected, rel=1e-6)
    summed = {name: torch.zeros_like(value) for name, value in gradient.items()}
    for part in ("vectors", "tokens", "signs", "anchor"):
        parts: dict[str, Any] = {
            "vectors": 0.0,
            "tokens": 0.0,
            "signs": 0.0,
            "anchor": 0.0,
            part: weights[part],
        }
        if part == "anchor":  # it never stands alone
            parts["vectors"] = 1e-9
        budgets = EVERY_BUDGET.budgets if parts["vectors"] else ()
        settings = LossSettings(budgets, token_scale=3.0, **parts)
        _, own = learn(RankingLoss(model, make_objective(model, settings), guides), model)
        for name, value in own.items():
            summed[name] += value
    assert_alike(summed, gradient)


@pytest.mark.parametrize("taught", [False, True], ids=["alone", "with a teacher"])
def test_caching_changes_neither_loss_nor_gradient(
    model: MultiVectorEncoder, guides: Guides, taught: bool
) -> None:
    how = Distillation(2.0, 3.0) if taught else Distillation()
    if not taught:
        guides = Guides(anchor=guides.anchor)
    objective = make_objective(model, EVERY_BUDGET, how)
    plain = RankingLoss(model, objective, guides)
    loss, expected = learn(plain, model)
    cached = CachedRankingLoss(model, 2, objective, guides)
    again, found = learn(cached, model)
    assert again == pytest.approx(loss, rel=1e-5)
    assert_alike(found, expected)
    for name, value in plain.statistics.items():
        assert float(cached.statistics[name]) == pytest.approx(float(value), rel=1e-4)
    alone = make_objective(model, EVERY_BUDGET)
    untaught, _ = learn(RankingLoss(model, alone, Guides(anchor=guides.anchor)), model)
    assert (loss > untaught + 1e-3) is taught


def test_every_part_follows_a_teacher(model: MultiVectorEncoder, guides: Guides) -> None:
    for part in ("vectors", "tokens", "signs"):
        weights: dict[str, Any] = {"vectors": 0.0, "tokens": 0.0, "signs": 0.0, part: 1.0}
        settings = LossSettings((2,) if part == "vectors" else (), **weights)
        alone, _ = learn(RankingLoss(model, make_objective(model, settings)), model)
        objective = make_objective(model, settings, Distillation(1.0))
        taught, _ = learn(RankingLoss(model, objective, guides), model)
        assert taught > alone + 1e-3, part


def test_a_model_is_at_its_own_anchor(tiny_model_path: str, model: MultiVectorEncoder) -> None:
    own = Guides(anchor=Teacher(load_model(tiny_model_path, ANCHORED, device="cpu")))
    held = RankingLoss(model, make_objective(model, LossSettings(anchor=9.0)), own)
    found, gradient = learn(held, model)
    expected, plain = learn(RankingLoss(model, make_objective(model)), model)
    assert found == pytest.approx(expected, abs=1e-5)
    assert_alike(gradient, plain)


# --- the number of vectors of a step


@given(st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True), st.integers(0, 99))
def test_every_budget_is_drawn_about_as_often(budgets: list[int], seed: int) -> None:
    drawn = [draw_budget(budgets, seed, step) for step in range(600)]
    for budget in budgets:
        assert abs(drawn.count(budget) - 600 / len(budgets)) < 90


def test_two_processes_draw_the_same() -> None:
    program = (
        "from pseudoquery.training.objective import draw_budget; "
        "print([draw_budget((4, 8, 16, 32), seed, step) for seed in (0, 1) for step in range(50)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    here = [draw_budget((4, 8, 16, 32), seed, step) for seed in (0, 1) for step in range(50)]
    assert printed == {f"{here}\n"}
    assert here[:50] != here[50:], "another seed draws others"


def test_a_step_has_the_budget_that_is_drawn_for_it(model: MultiVectorEncoder) -> None:
    settings = LossSettings(budgets=(1, 4))
    seen = set()
    for step in range(6):
        loss, _ = learn(RankingLoss(model, make_objective(model, settings, seed=3)), model, step)
        fixed = LossSettings(budgets=(draw_budget((1, 4), 3, step),))
        assert loss == learn(RankingLoss(model, make_objective(model, fixed)), model)[0]
        seen.add(loss)
    assert len(seen) == 2
