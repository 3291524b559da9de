"""A GPU makes the vectors that a CPU makes, whatever the lengths of the texts in a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import WORDS

from pseudoquery.encoding import encode_texts
from pseudoquery.model import load_model
from pseudoquery.representation import preset
from pseudoquery.windowed import encode_windowed, tokenise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

LENGTHS = (1, 5, 17, 63, 64, 65, 100, 191, 255, 256, 257, 400, 511, 600, 777, 1500)


@pytest.mark.parametrize("name", ["single-vector", "late-interaction"])
def test_vectors_of_any_length(name: str) -> None:
    words = WORDS.split() * 100
    texts = [" ".join(words[start : start + length]) for start, length in enumerate(LENGTHS)]
    on_cpu = load_model("default", preset(name), device="cpu")
    on_gpu = load_model("default", preset(name), device="cuda")
    expected = encode_texts(on_cpu, texts, "document")
    for own, other in zip(expected, encode_texts(on_gpu, texts, "document"), strict=True):
        np.testing.assert_allclose(other.vectors, own.vectors, atol=1e-3)
    windowed = encode_windowed(on_gpu, tokenise(on_gpu, texts, "document"), "document")
    for values, mask, places in windowed:
        for row, place in enumerate(places):
            vectors = values[row][mask[row]].cpu().numpy()
            np.testing.assert_allclose(vectors, expected[place].vectors, atol=1e-3)
