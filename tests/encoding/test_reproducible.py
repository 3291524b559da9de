"""What docs/concepts/reproducibility.md promises of vectors: the bits, or a rounding."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import encode_documents, encode_queries
from pseudoquery.records import Document

QUERIES = ["king of the city", "water", "the horse and the moon by the river", "what is love"]
DOCUMENTS = [Document(f"d{position}", query * 9) for position, query in enumerate(QUERIES)]
ROUNDING = 1e-5


@pytest.mark.parametrize("count", [1, len(QUERIES)])
def test_the_same_batch_gives_the_same_bits(tiny_model: MultiVectorEncoder, count: int) -> None:
    for _ in range(3):
        for first, second in zip(
            encode_queries(tiny_model, QUERIES[:count]),
            encode_queries(tiny_model, QUERIES[:count]),
            strict=True,
        ):
            np.testing.assert_array_equal(first, second)
        made, again = (
            encode_documents(tiny_model, DOCUMENTS[:count], "windows", "signs") for _ in range(2)
        )
        for one, other in zip(made, again, strict=True):
            np.testing.assert_array_equal(one.vectors, other.vectors)
            np.testing.assert_array_equal(one.codes, other.codes)


def test_a_question_beside_others_differs_by_rounding_alone(tiny_model: MultiVectorEncoder) -> None:
    for query, together in zip(QUERIES, encode_queries(tiny_model, QUERIES), strict=True):
        (alone,) = encode_queries(tiny_model, [query])
        np.testing.assert_allclose(together, alone, rtol=0, atol=ROUNDING)
