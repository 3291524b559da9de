"""The score of every query of a batch with every document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentence_transformers import MultiVectorEncoder
from sentence_transformers.util import cat_padded_token_embeddings
from torch import Tensor

from pseudoquery.method.maxsim import maxsim_matrix
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import similarity_matrix

TASKS = ("query", "document")


def score_all(
    queries: tuple[Tensor, Tensor], documents: tuple[Tensor, Tensor], settings: Representation
) -> Tensor:
    """Score all pairs, from vectors and masks: (queries, documents)."""
    query_vectors, query_mask = queries
    vectors, mask = documents
    if settings.score == "max":
        return maxsim_matrix(settings.scale * query_vectors, vectors, query_mask, mask).float()
    return similarity_matrix(query_vectors, vectors, query_mask, mask, scale=settings.scale).float()


def embed_features(
    model: MultiVectorEncoder, features: Mapping[str, Any], task: str, texts_at_once: int
) -> tuple[Tensor, Tensor]:
    """Embed so many texts at a time; return the vectors and the mask of them all."""
    values, masks = [], []
    for start in range(0, len(features["input_ids"]), texts_at_once):
        part = {
            name: value[start : start + texts_at_once]
            for name, value in features.items()
            if isinstance(value, Tensor)
        }
        outputs = model(part, task=task)
        values.append(outputs["token_embeddings"])
        masks.append(outputs["attention_mask"].bool())
    return cat_padded_token_embeddings(values, masks)
