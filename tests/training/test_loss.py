from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder
from torch import Tensor, nn

from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.token_cache import tokenise
from pseudoquery.encoding.windowed_encoder import collate
from pseudoquery.method.presets import preset
from pseudoquery.method.scores import contributions, softmax_score
from pseudoquery.training.embedded_batch import EmbeddedBatch, assemble_batch
from pseudoquery.training.loss import CachedRankingLoss, Guides, RankingLoss
from pseudoquery.training.objective import make_objective
from pseudoquery.training.ranking_losses import (
    Distillation,
    batch_scores,
    contrastive_loss,
    contribution_statistics,
    distillation_loss,
    total_loss,
)
from pseudoquery.training.teacher import Teacher
from tests.conftest import WORDS

SETTINGS = preset("recommended", scale=2.0)
Label = dict[str, Tensor]


def label(
    positions: list[int], positives: list[int], known: list[list[int]] | None = None
) -> Label:
    """Make the label of a batch; by default, only its positive answers a query."""
    known = known or [[positions[column]] for column in positives]
    most = max(map(len, known))
    return {
        "documents": torch.tensor(positions),
        "positives": torch.tensor(positives),
        "known": torch.tensor([ids + [-1] * (most - len(ids)) for ids in known]),
    }


def batch(said: Label, dim: int = 4, k: int = 2) -> EmbeddedBatch:
    generator = torch.Generator().manual_seed(0)
    count, queries = len(said["documents"]), len(said["positives"])
    documents = torch.randn(count, k, dim, generator=generator)
    query_vectors = torch.randn(queries, 1, dim, generator=generator)
    masks = torch.ones(queries, 1, dtype=torch.bool), torch.ones(count, k, dtype=torch.bool)
    return assemble_batch((query_vectors, masks[0]), (documents, masks[1]), said)


def loss_of(made: EmbeddedBatch) -> float:
    return float(contrastive_loss(batch_scores(made, SETTINGS), made.positives))


def naive(made: EmbeddedBatch, left_out: set[tuple[int, int]]) -> float:
    """The loss, query by query and document by document."""
    total = 0.0
    for query, positive in enumerate(made.positives.tolist()):
        scores = {
            place: float(softmax_score(2.0 * made.documents[place] @ made.queries[query, 0]))
            for place in range(len(made.documents))
            if (query, place) not in left_out
        }
        total -= scores[positive] - math.log(sum(math.exp(score) for score in scores.values()))
    return total / len(made.queries)


def test_every_other_document_is_a_negative() -> None:
    made = batch(label([0, 1, 2, 3, 4, 5], [0, 1, 2]))
    assert loss_of(made) == pytest.approx(naive(made, set()), rel=1e-5)


def test_a_repeated_positive_is_no_negative() -> None:
    # documents 0, 2 and 4 are one; 1 and 5 another
    made = batch(label([7, 1, 7, 3, 7, 1], [0, 1, 2]))
    left_out = {(0, 2), (0, 4), (2, 0), (2, 4), (1, 5)}
    assert loss_of(made) == pytest.approx(naive(made, left_out), rel=1e-5)
    assert naive(made, left_out) < naive(made, set()) - 1e-3


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=7).flatmap(
        lambda numbers: st.tuples(
            st.just(numbers),
            st.lists(
                st.tuples(
                    st.integers(0, len(numbers) - 1), st.lists(st.integers(0, 8), max_size=3)
                ),
                min_size=1,
                max_size=5,
            ),
        )
    )
)
def test_every_known_answer_is_masked(
    drawn: tuple[list[int], list[tuple[int, list[int]]]],
) -> None:
    numbers, asked = drawn
    known = [[numbers[positive], *others] for positive, others in asked]
    made = batch(label(numbers, [positive for positive, _ in asked], known))
    found = batch_scores(made, SETTINGS)
    for query, (positive, _) in enumerate(asked):
        for place, number in enumerate(numbers):
            expected = float(softmax_score(2.0 * made.documents[place] @ made.queries[query, 0]))
            if place != positive and number in known[query]:
                expected = -math.inf
            assert float(found[query, place]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_positive_without_vectors_teaches_nothing() -> None:
    made = batch(label([0, 1, 2, 3], [0, 1]))
    documents = made.documents.clone().requires_grad_()
    mask = made.documents_mask.clone()
    mask[1] = False
    empty = replace(made, documents=documents, documents_mask=mask)
    loss = total_loss(empty, SETTINGS, Distillation())
    torch.autograd.backward(loss)
    found = documents.grad
    assert found is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(found).all()
    assert not found[1].any()
    assert found[0].any()
    alone = replace(
        empty, queries=made.queries[:1], positives=made.positives[:1], known=made.known[:1]
    )
    half = total_loss(replace(alone, queries_mask=made.queries_mask[:1]), SETTINGS, Distillation())
    assert loss.item() == pytest.approx(half.item() / 2, rel=1e-5)


def test_figure_2_is_of_the_positives() -> None:
    made = batch(label([0, 1, 2, 3, 4, 5], [2, 0, 2]), k=3)
    values = torch.stack(
        [
            contributions(2.0 * made.documents[positive] @ made.queries[query, 0])
            for query, positive in enumerate((2, 0, 2))
        ]
    )
    statistics = contribution_statistics(made, SETTINGS)
    assert float(statistics["max_r"]) == pytest.approx(float(values.amax(dim=1).mean()), rel=1e-5)
    variance = values.var(dim=1, unbiased=False).mean()
    assert float(statistics["var_r"]) == pytest.approx(float(variance), rel=1e-5)


# --- distillation


def slow_distillation(
    scores: list[list[float]], teacher: list[list[float]], temperature: float
) -> float:
    """KL divergence, query by query, over the documents that both have scored."""
    total = 0.0
    for given_, wanted in zip(scores, teacher, strict=True):
        pairs = [
            (score, one / temperature)
            for score, one in zip(given_, wanted, strict=True)
            if math.isfinite(score) and math.isfinite(one)
        ]
        if len(pairs) < 2:
            continue
        sums = [math.log(sum(math.exp(pair[side]) for pair in pairs)) for side in (0, 1)]
        for score, one in pairs:
            total += math.exp(one - sums[1]) * ((one - sums[1]) - (score - sums[0]))
    return total / len(scores)


numbers_or_nothing = st.one_of(st.floats(-5, 5), st.just(-math.inf))
matrices = st.tuples(st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(
        *(
            st.lists(
                st.lists(numbers_or_nothing, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            )
            for _ in range(2)
        )
    )
)


@settings(max_examples=200)
@given(matrices, st.floats(0.2, 5))
def test_distillation_is_the_divergence_over_what_both_scored(
    drawn: tuple[list[list[float]], list[list[float]]], temperature: float
) -> None:
    scores = torch.tensor(drawn[0], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor(drawn[1], dtype=torch.float64)
    loss = distillation_loss(scores, teacher, temperature)
    assert loss.item() == pytest.approx(slow_distillation(*drawn, temperature), abs=1e-9)
    torch.autograd.backward(loss)
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    unscored = ~(torch.isfinite(scores) & torch.isfinite(teacher))
    assert not scores.grad[unscored].any()
    agreeing = distillation_loss(teacher / temperature, teacher, temperature)
    assert float(agreeing) == pytest.approx(0.0, abs=1e-12)


def test_the_total_adds_what_is_asked_for() -> None:
    made = batch(label([0, 1, 2, 3], [0, 1]))
    taught = replace(made, teacher=torch.randn(2, 4))
    plain = float(total_loss(made, SETTINGS, Distillation()))
    assert float(total_loss(taught, SETTINGS, Distillation(0.0))) == plain
    extra = float(total_loss(taught, SETTINGS, Distillation(1.0, 2.0))) - plain
    assert extra > 0
    assert float(total_loss(taught, SETTINGS, Distillation(3.0, 2.0))) == pytest.approx(
        plain + 3 * extra, rel=1e-5
    )
    assert float(total_loss(replace(made, share=0.5), SETTINGS, Distillation())) == plain / 2


# --- with a model


def columns(model: MultiVectorEncoder) -> tuple[list[dict[str, Any]], Label]:
    """Queries and documents, one of which is longer than a window."""
    queries = ["who saw the king", "where is the river", "what about the moon", "who is king"]
    documents = [f"it was about the {name} and more" for name in ("king", "river", "moon")] * 2
    documents[4] += " and " + " ".join(WORDS.split()[:80])
    features = [
        collate(tokenise(model, queries, "query")),
        collate(tokenise(model, documents, "document")),
    ]
    return features, label([0, 1, 2, 3, 4, 5], [0, 1, 2, 0])


def gradients(model: MultiVectorEncoder) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert any(one.abs().max() > 0 for one in expected.values())
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5)


def learnt(loss: nn.Module, model: MultiVectorEncoder) -> tuple[float, dict[str, Tensor]]:
    """The loss of the batch above, and its gradient."""
    features, said = columns(model)
    model.zero_grad()
    value = loss([dict(one) for one in features], said)
    value.backward()
    return value.item(), gradients(model)


@pytest.mark.parametrize("taught", [False, True], ids=["alone", "with a teacher"])
@pytest.mark.parametrize("name", ["recommended", "single-vector", "late-interaction", "paper"])
def test_caching_changes_neither_loss_nor_gradient(
    tiny_model_path: str, name: str, taught: bool
) -> None:
    model = load_model(tiny_model_path, preset(name, k=3), device="cpu").eval()
    teacher, how = None, Distillation()
    if taught:
        other = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
        teacher, how = Teacher(other), Distillation(2.0, 3.0)
    objective, guides = make_objective(model, distillation=how), Guides(teacher)
    plain = RankingLoss(model, objective, guides)
    loss, expected = learnt(plain, model)
    cached = CachedRankingLoss(model, 2, objective, guides)
    again, found = learnt(cached, model)
    assert again == pytest.approx(loss, rel=1e-5)
    alike(found, expected)
    for key, value in plain.statistics.items():
        assert float(cached.statistics[key]) == pytest.approx(float(value), rel=1e-4)
    if taught:
        assert loss > learnt(RankingLoss(model, make_objective(model)), model)[0]


def test_a_teacher_is_left_as_it_is(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("recommended", k=3), device="cpu").train()
    other = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
    teacher = Teacher(other)
    objective = make_objective(model, distillation=Distillation(1.0))
    learnt(RankingLoss(model, objective, Guides(teacher)), model)
    assert not other.training
    assert not gradients(other)
    features, _ = columns(model)
    whole = teacher.scores(features, 100)
    assert whole.shape == (4, 6)
    assert not whole.is_inference(), "it has to take part in a gradient"
    torch.testing.assert_close(teacher.scores(features, 2), whole, rtol=1e-4, atol=1e-4)


def test_a_student_like_its_teacher_learns_nothing_from_it(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("recommended", k=3), device="cpu").eval()
    twin = Teacher(load_model(tiny_model_path, preset("recommended", k=3), device="cpu"))
    alone, expected = learnt(RankingLoss(model, make_objective(model)), model)
    objective = make_objective(model, distillation=Distillation(5.0))
    taught, found = learnt(RankingLoss(model, objective, Guides(twin)), model)
    assert taught == pytest.approx(alone, abs=1e-5)
    alike(found, expected)


def test_learnt_codes_get_a_gradient(tiny_model_path: str) -> None:
    model = load_model(
        tiny_model_path, preset("recommended", documents="learnt", k=3), device="cpu"
    )
    _, found = learnt(RankingLoss(model, make_objective(model)), model)
    assert any(name.endswith("codes") and value.abs().sum() > 0 for name, value in found.items())


def test_one_query_vector_is_scored_in_single_precision() -> None:
    made = batch(label([0, 1, 2, 3], [0, 1]))
    expected = batch_scores(made, SETTINGS)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(batch_scores(made, SETTINGS), expected)
