from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pseudoquery.method.maxsim import DOTS_AT_ONCE, maxsim_matrix, maxsim_scores
from pseudoquery.method.scores import similarity_matrix


@settings(deadline=None)
@given(
    queries=st.integers(0, 5),
    documents=st.integers(1, 5),
    at_once=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_it_is_the_dense_score_and_has_its_gradient(
    queries: int, documents: int, at_once: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    asked = torch.randn(queries, 4, 3, generator=generator, requires_grad=True)
    there = torch.randn(documents, 6, 3, generator=generator, requires_grad=True)
    asked_mask = torch.rand(queries, 4, generator=generator) < 0.7
    there_mask = torch.rand(documents, 6, generator=generator) < 0.7
    expected = similarity_matrix(asked, there, asked_mask, there_mask, score="max")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DOTS_AT_ONCE, "cpu", at_once)
        found = maxsim_matrix(asked, there, asked_mask, there_mask)
        ranked = maxsim_scores(asked, there, asked_mask, there_mask)
    torch.testing.assert_close(ranked, found)
    empty = ~there_mask.any(dim=1)
    assert torch.isneginf(found[:, empty]).all()
    torch.testing.assert_close(found[:, ~empty], expected[:, ~empty])
    weights = torch.randn(queries, int((~empty).sum()), generator=generator)
    for own, wanted in zip(
        torch.autograd.grad((weights * found[:, ~empty]).sum(), (asked, there)),
        torch.autograd.grad((weights * expected[:, ~empty]).sum(), (asked, there)),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted.nan_to_num(0.0))


def test_half_of_the_digits_rank_nearly_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    asked, there = (torch.randn(9, 5, 40, generator=generator) for _ in range(2))
    masks = [torch.rand(9, 5, generator=generator) < 0.7 for _ in range(2)]
    exact = maxsim_scores(asked, there, *masks)
    torch.testing.assert_close(
        maxsim_scores(asked, there, *masks, half=True), exact, rtol=0.02, atol=0.2
    )
