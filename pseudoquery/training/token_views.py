"""The tokens of a batch from one pass of the encoder, and what can be compared of them.

Usually a model hands out the vectors that its representation makes. A loss over several kinds of
vectors wants the tokens, and makes each kind of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor, nn

from pseudoquery.encoding.pooling import Pooling, pooling_of
from pseudoquery.method.representation import Representation

Vectors = tuple[Tensor, Tensor]
"""Vectors (texts, vectors, dim) and their mask (texts, vectors)."""
ALL_TOKENS = Representation("tokens", "tokens", special_tokens=True, normalise=False)
"""All tokens as the encoder makes them."""


class TokenBatch(NamedTuple):
    """The tokens of a batch of texts."""

    embeddings: Tensor
    """(texts, tokens, dim)"""
    mask: Tensor
    """(texts, tokens): False for padding."""
    special: Tensor
    """(texts, tokens): whether it is a token that the tokenizer added, such as [CLS]."""


@contextmanager
def handing_out_tokens(model: MultiVectorEncoder) -> Iterator[None]:
    """Let a model hand out all tokens of a text in place of its vectors."""
    pooling = pooling_of(model)
    representation = pooling.representation
    pooling.representation = ALL_TOKENS
    try:
        yield
    finally:
        pooling.representation = representation


def find_special(features: Mapping[str, Any], special_ids: Tensor) -> Tensor:
    """Say which of each text's tokens are special: (texts, most), in the order of the text.

    The features are those of windowed texts. A token that another window represents is left out.
    """
    kept: Tensor = features["kept"].flatten(1).bool()
    special: Tensor = (
        torch.isin(features["input_ids"], special_ids.to(kept.device)).flatten(1) & kept
    )
    kept_first = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    return (special & kept).gather(1, kept_first)


def pool_tokens(tokens: TokenBatch, pooling: Pooling, task: str) -> Vectors:
    """Make the vectors of a representation."""
    features = {
        "token_embeddings": tokens.embeddings,
        "attention_mask": tokens.mask,
        "special_tokens_mask": tokens.special,
    }
    pooled = pooling(features, task=task)
    return pooled["token_embeddings"], pooled["attention_mask"]


def unit_tokens(tokens: TokenBatch) -> Vectors:
    """Bring all tokens to length 1; special ones are left out, as in an index with token codes."""
    unit = nn.functional.normalize(tokens.embeddings.float(), dim=-1)
    return unit, tokens.mask & ~tokens.special


def straight_through_signs(unit: Tensor) -> Tensor:
    """Replace vectors of length 1 by their signs, at length 1 too; gradients pass unchanged.

    The signs have no gradient of their own. They get that of the vector that they stand for, which
    the normalisation before makes orthogonal to it: a step turns a token and never lengthens it. To
    clip the gradient where a number is above 1, as is done elsewhere, would clip nothing here.
    """
    signs: Tensor = _Signs.apply(unit)  # type: ignore[no-untyped-call]
    return signs


class _Signs(torch.autograd.Function):
    """Signs with the gradient of what they are the signs of."""

    @staticmethod
    def forward(_: Any, unit: Tensor) -> Tensor:
        length = unit.shape[-1] ** -0.5
        return torch.where(unit >= 0, length, -length).to(unit.dtype)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient
