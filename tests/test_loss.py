from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.loss import (
    Batch,
    CachedRankingLoss,
    RankingLoss,
    contrastive_loss,
    figure_2,
    make_batch,
)
from pseudoquery.model import load_model
from pseudoquery.representation import preset
from pseudoquery.scores import contributions, softmax_score


def batch(numbers: list[int], queries: int = 3, dim: int = 4, k: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(0)
    documents = torch.randn(len(numbers), k, dim, generator=generator)
    asked = torch.randn(queries, 1, dim, generator=generator)
    mask = torch.ones(len(numbers), k, dtype=torch.bool)
    return make_batch(
        (asked, torch.ones(queries, 1, dtype=torch.bool)), (documents, mask), torch.tensor(numbers)
    )


SETTINGS = preset("recommended", scale=2.0)


def naive(made: Batch, left_out: set[tuple[int, int]]) -> float:
    """The loss, query by query and document by document."""
    total = 0.0
    for query in range(len(made.queries)):
        scores = {
            place: float(softmax_score(2.0 * made.documents[place] @ made.queries[query, 0]))
            for place in range(len(made.documents))
            if (query, place) not in left_out
        }
        total -= scores[query] - math.log(sum(math.exp(score) for score in scores.values()))
    return total / len(made.queries)


def test_every_other_document_is_a_negative() -> None:
    made = batch([0, 1, 2, 3, 4, 5])
    assert float(contrastive_loss(made, SETTINGS)) == pytest.approx(naive(made, set()), rel=1e-5)


def test_a_repeated_positive_is_no_negative() -> None:
    made = batch([7, 1, 7, 3, 7, 1])  # documents 0, 2 and 4 are one; 1 and 5 another
    left_out = {(0, 2), (0, 4), (2, 0), (2, 4), (1, 5)}
    assert float(contrastive_loss(made, SETTINGS)) == pytest.approx(naive(made, left_out), rel=1e-5)
    assert naive(made, left_out) < naive(made, set()) - 1e-3


def test_figure_2_is_of_the_positives() -> None:
    made = batch([0, 1, 2, 3, 4, 5], k=3)
    values = torch.stack(
        [contributions(2.0 * made.documents[q] @ made.queries[q, 0]) for q in range(3)]
    )
    statistics = figure_2(made, SETTINGS)
    assert statistics["max_r"] == pytest.approx(float(values.amax(dim=1).mean()), rel=1e-5)
    variance = values.var(dim=1, unbiased=False).mean()
    assert statistics["var_r"] == pytest.approx(float(variance), rel=1e-5)


def columns(model: MultiVectorEncoder) -> tuple[list[dict[str, Any]], Tensor]:
    queries = ["who saw the king", "where is the river", "what about the moon"]
    documents = [f"it was about the {name} and more" for name in ("king", "river", "moon")] * 2
    features = [
        dict(model.tokenizer(texts, padding=True, return_tensors="pt"))
        for texts in (queries, documents)
    ]
    return features, torch.tensor([0, 1, 2, 3, 4, 5])


def gradients(model: MultiVectorEncoder) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("name", ["recommended", "single-vector", "late-interaction", "paper"])
def test_caching_changes_neither_loss_nor_gradient(tiny_model_path: str, name: str) -> None:
    model = load_model(tiny_model_path, preset(name, k=3), device="cpu").eval()
    features, numbers = columns(model)
    plain = RankingLoss(model)
    loss = plain([dict(one) for one in features], numbers)
    loss.backward()
    expected = gradients(model)
    model.zero_grad()
    cached = CachedRankingLoss(model, mini_batch_size=2)
    again = cached([dict(one) for one in features], numbers)
    again.backward()
    assert again.item() == pytest.approx(loss.item(), rel=1e-5)
    found = gradients(model)
    assert found.keys() == expected.keys()
    assert any(one.abs().max() > 0 for one in expected.values())
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5)
    assert cached.statistics == pytest.approx(plain.statistics, rel=1e-4)


def test_learnt_codes_get_a_gradient(tiny_model_path: str) -> None:
    model = load_model(
        tiny_model_path, preset("recommended", documents="learnt", k=3), device="cpu"
    )
    features, numbers = columns(model)
    RankingLoss(model)(features, numbers).backward()
    found = gradients(model)
    assert any(name.endswith("codes") and value.abs().sum() > 0 for name, value in found.items())


def test_numbers_are_needed(tiny_model: MultiVectorEncoder) -> None:
    features, _ = columns(tiny_model)
    with pytest.raises(ValueError, match="numbers of the documents"):
        CachedRankingLoss(tiny_model, 2)(features)
