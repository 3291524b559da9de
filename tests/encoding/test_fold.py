"""Huge texts are folded into weighted means before they are pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import encode as encoding
from pseudoquery.encoding.encode import encode_texts
from tests.support.texts import assert_sound, encode_one, with_representation, words


@pytest.fixture
def small_folds(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(encoding, "FOLD_ABOVE", 100)
    monkeypatch.setattr(encoding, "FOLD_BLOCK", 128)
    monkeypatch.setattr(encoding, "FOLD_TO", 8)
    return monkeypatch


def test_folded_text(tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch) -> None:
    text = words(600)
    folded = encode_one(tiny_model, text)
    assert_sound(folded, text, 4)
    assert len(folded.vectors) == 4
    assert len(folded.owners) == 600
    assert (folded.owners >= 0).all()
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    unfolded = encode_one(tiny_model, text)
    assert folded.spans.tolist() == unfolded.spans.tolist()
    assert not np.allclose(folded.vectors, unfolded.vectors, atol=1e-6)


def test_folded_text_with_locality_has_stretches(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch
) -> None:
    text = words(600)
    cuts = {}
    for locality in (0.0, 1.0, 100.0):
        folded = encode_one(with_representation(tiny_model_path, locality=locality), text)
        assert_sound(folded, text, 4)
        owners = folded.owners[folded.owners >= 0]
        assert len(owners) == 600
        cuts[locality] = int((np.diff(owners) != 0).sum())
    assert cuts[0.0] > cuts[1.0] > cuts[100.0] == 3


@pytest.mark.parametrize(
    "changes",
    [{}, {"append": "cls"}, {"append": "mean", "mix_mean": 0.5}, {"locality": 1.0}],
)
def test_fold_without_reduction_changes_nothing(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    model = with_representation(tiny_model_path, **changes)
    text = words(300)
    small_folds.setattr(encoding, "FOLD_TO", 200)
    folded = encode_one(model, text)
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    unfolded = encode_one(model, text)
    np.testing.assert_allclose(folded.vectors, unfolded.vectors, atol=1e-4)
    assert folded.owners.tolist() == unfolded.owners.tolist()


@pytest.mark.parametrize("special_tokens", [True, False])
def test_folded_mean_is_exact(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, special_tokens: bool
) -> None:
    model = with_representation(tiny_model_path, documents="mean", special_tokens=special_tokens)
    text = words(300)
    folded = encode_one(model, text).vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    np.testing.assert_allclose(folded, encode_one(model, text).vectors, atol=1e-5)


def test_folded_cls_is_the_cls_token(tiny_model_path: str, small_folds: pytest.MonkeyPatch) -> None:
    text = words(300)
    cls = encode_one(with_representation(tiny_model_path, documents="cls"), text).vectors[0]
    folded = encode_one(with_representation(tiny_model_path, append="cls"), text)
    np.testing.assert_allclose(folded.vectors[-1], cls, atol=1e-5)
    assert set(folded.owners.tolist()) == set(range(len(folded.vectors) - 1)), "no word is in it"


@pytest.mark.parametrize("query", ["cls", "tokens"])
def test_queries_of_tokens_are_not_folded(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, query: str
) -> None:
    model = with_representation(tiny_model_path, query=query)
    folded = encode_one(model, words(300), "query").vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    np.testing.assert_allclose(folded, encode_one(model, words(300), "query").vectors, atol=1e-5)


@pytest.mark.parametrize("documents", ["first", "tokens", "random", "learnt", "stretches", "cls"])
def test_vectors_of_single_tokens_are_not_folded(
    tiny_model_path: str, small_folds: pytest.MonkeyPatch, documents: str
) -> None:
    model = with_representation(tiny_model_path, documents=documents)
    folded = encode_one(model, words(300)).vectors
    small_folds.setattr(encoding, "FOLD_ABOVE", 10_000)
    assert np.array_equal(folded, encode_one(model, words(300)).vectors)


def test_huge_text_beside_a_short_one(
    tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch
) -> None:
    texts = ["the king", words(400), "", words(90)]
    for text, encoded in zip(texts, encode_texts(tiny_model, texts, "document"), strict=True):
        np.testing.assert_allclose(encoded.vectors, encode_one(tiny_model, text).vectors, atol=1e-5)
        assert len(encoded.owners) == len(encoded.spans)


def test_folded_text_without_words(
    tiny_model: MultiVectorEncoder, small_folds: pytest.MonkeyPatch
) -> None:
    assert encode_one(tiny_model, "[SEP] " * 300).vectors.shape == (0, 32)
