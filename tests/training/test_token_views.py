"""What is made of all tokens of a batch: special ones, vectors of length 1, and signs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder
from torch import Tensor, nn

from pseudoquery.encoding.pooling import Pooling, pooling_of
from pseudoquery.encoding.token_cache import tokenise
from pseudoquery.encoding.windowed_encoder import collate
from pseudoquery.method.maxsim import maxsim_matrix
from pseudoquery.method.presets import preset
from pseudoquery.training.token_views import (
    ALL_TOKENS,
    TokenBatch,
    find_special,
    handing_out_tokens,
    pool_tokens,
    straight_through_signs,
    unit_tokens,
)
from tests.conftest import WORDS

TEXTS = ["the king", "", " ".join(WORDS.split()[:100]), "zzz the river and the moon"]


def tokens_of(model: MultiVectorEncoder, task: str) -> tuple[TokenBatch, dict[str, Tensor]]:
    features = collate(tokenise(model, TEXTS, "query" if task == "query" else "document"))
    special = find_special(features, pooling_of(model).special_ids)
    with handing_out_tokens(model), torch.no_grad():
        outputs = model(dict(features), task=task)
    values, mask = outputs["token_embeddings"], outputs["attention_mask"]
    return TokenBatch(values, mask, special[:, : values.shape[1]]), outputs


@pytest.mark.parametrize("task", ["query", "document"])
def test_all_tokens_of_a_text_and_which_are_special(
    tiny_model: MultiVectorEncoder, task: str
) -> None:
    representation = pooling_of(tiny_model).representation
    tokens, outputs = tokens_of(tiny_model.eval(), task)
    assert pooling_of(tiny_model).representation == representation
    torch.testing.assert_close(tokens.special, outputs["special_tokens_mask"])
    regular = (tokens.mask & ~tokens.special).sum(dim=1).tolist()
    assert regular[:3] == [2, 0, 100]
    assert tokens.special[0].tolist()[:4] == [True, False, False, True]


@pytest.mark.parametrize("task", ["query", "document"])
@pytest.mark.parametrize("name", ["recommended", "single-vector", "paper", "late-interaction"])
def test_pooled_tokens_are_the_vectors_of_the_model(
    tiny_model: MultiVectorEncoder, name: str, task: str
) -> None:
    """A model with that representation makes the same, to the bit."""
    pooling = Pooling(**preset(name, k=3).settings())
    tokens, _ = tokens_of(tiny_model.eval(), task)
    values, mask = pool_tokens(tokens, pooling, task)
    saved = pooling_of(tiny_model).representation
    features = collate(tokenise(tiny_model, TEXTS, "query" if task == "query" else "document"))
    pooling_of(tiny_model).representation = pooling.representation
    try:
        with torch.no_grad():
            expected = tiny_model(dict(features), task=task)
    finally:
        pooling_of(tiny_model).representation = saved
    assert torch.equal(mask, expected["attention_mask"])
    assert torch.equal(values[mask], expected["token_embeddings"][mask])


def test_a_failure_leaves_the_model_as_it_was(tiny_model: MultiVectorEncoder) -> None:
    representation = pooling_of(tiny_model).representation

    def fail() -> None:
        with handing_out_tokens(tiny_model):
            assert pooling_of(tiny_model).representation == ALL_TOKENS
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert pooling_of(tiny_model).representation == representation


def test_tokens_have_length_one_and_special_ones_are_left_out() -> None:
    embeddings = torch.tensor([[[3.0, 4.0], [0.0, 2.0], [0.0, 0.0], [5.0, 5.0]]])
    mask = torch.tensor([[True, True, True, False]])
    special = torch.tensor([[True, False, False, False]])
    values, kept = unit_tokens(TokenBatch(embeddings, mask, special))
    assert kept.tolist() == [[False, True, True, False]]
    torch.testing.assert_close(values[0, :3], torch.tensor([[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]]))


# --- signs


numbers = st.floats(-2, 2, width=32)
texts = st.lists(st.lists(st.lists(numbers, min_size=3, max_size=3), max_size=4), min_size=1)


def padded(vectors: list[list[list[float]]]) -> tuple[Tensor, Tensor]:
    widest = max(1, *map(len, vectors))
    values = torch.full((len(vectors), widest, 3), 7.0)
    mask = torch.zeros(len(vectors), widest, dtype=torch.bool)
    for row, text in enumerate(vectors):
        for column, vector in enumerate(text):
            values[row, column] = torch.tensor(vector)
            mask[row, column] = True
    return values, mask


def slow_sign_maxsim(query: list[list[float]], document: list[list[float]]) -> float:
    """Token by token and number by number."""
    if not document:
        return -math.inf
    total = 0.0
    for asked in query:
        dots = []
        for token in document:
            signs = [(1 if number >= 0 else -1) / math.sqrt(len(token)) for number in token]
            dots.append(sum(a * b for a, b in zip(asked, signs, strict=True)))
        total += max(dots)
    return total


@given(texts, texts)
def test_maxsim_over_signs_is_that_of_a_slow_one(
    queries: list[list[list[float]]], documents: list[list[list[float]]]
) -> None:
    (asked, queries_mask), (tokens, documents_mask) = padded(queries), padded(documents)
    asked.requires_grad_()
    tokens.requires_grad_()
    scores = maxsim_matrix(asked, straight_through_signs(tokens), queries_mask, documents_mask)
    for row, query in enumerate(queries):
        for column, document in enumerate(documents):
            expected = slow_sign_maxsim(query, document)
            assert scores[row, column].item() == pytest.approx(expected, abs=1e-4)
    if not any(queries) or not documents[0]:
        return
    torch.autograd.backward(scores[:, 0].sum())
    assert asked.grad is not None
    assert tokens.grad is not None
    # Each query token follows the signs of one token, and that token follows it.
    lengths = asked.grad.norm(dim=2)[queries_mask]
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    assert not asked.grad[~queries_mask].any()
    followed = asked.detach()[queries_mask].sum(dim=0)
    torch.testing.assert_close(tokens.grad.sum(dim=(0, 1)), followed, atol=1e-4, rtol=1e-4)
    assert not tokens.grad[1:].any()
    assert not tokens.grad[~documents_mask].any()


@given(st.lists(st.lists(numbers, min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_gradient_of_signs_is_that_of_the_vectors(vectors: list[list[float]]) -> None:
    unit = torch.tensor(vectors, requires_grad=True)
    weights = torch.linspace(-1, 2, unit.numel()).view_as(unit)
    signs = straight_through_signs(unit)
    assert torch.equal(signs > 0, unit >= 0)
    assert torch.allclose(signs.norm(dim=1), torch.ones(len(unit)))
    torch.autograd.backward((weights * signs).sum())
    assert unit.grad is not None
    assert torch.equal(unit.grad, weights)


def test_training_for_signs_turns_a_token_and_never_lengthens_it() -> None:
    token = torch.tensor([[3.0, -1.0, 2.0]], requires_grad=True)
    signs = straight_through_signs(nn.functional.normalize(token, dim=-1))
    torch.autograd.backward((torch.tensor([[1.0, 5.0, -2.0]]) * signs).sum())
    assert token.grad is not None
    assert (token.grad * token).sum().item() == pytest.approx(0.0, abs=1e-6)
    assert token.grad.norm() > 0.1
