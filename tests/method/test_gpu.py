"""A GPU makes the vectors that a CPU makes, whatever the lengths of the texts in a batch.

The kernels are tested by test_gpu_kmeans.py, test_gpu_search.py and test_gpu_scan.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pseudoquery.encoding.encode import encode_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.token_cache import tokenise
from pseudoquery.encoding.windowed_encoder import encode_windowed
from pseudoquery.method import gpu
from pseudoquery.method import kmeans as reference
from pseudoquery.method.kmeans import kmeans
from pseudoquery.method.presets import preset
from tests.conftest import WORDS

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
    for values, mask, positions in windowed:
        for row, position in enumerate(positions):
            vectors = values[row][mask[row]].cpu().numpy()
            np.testing.assert_allclose(vectors, expected[position].vectors, atol=1e-3)


@pytest.mark.parametrize(("dtype", "by_kernel"), [(torch.bfloat16, True), (torch.float32, False)])
def test_the_kernel_is_chosen_and_has_the_references_gradient(
    dtype: torch.dtype, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    if not gpu.runs_kernels():
        pytest.skip("this GPU is too small")
    from pseudoquery.method import kmeans_gpu as gpu_kmeans

    chosen: list[int] = []

    def spied(tokens: Tensor, weights: Tensor, k: int, *more: Any) -> Any:
        chosen.append(k)
        return cluster(tokens, weights, k, *more)

    cluster = gpu_kmeans.cluster
    monkeypatch.setattr(gpu_kmeans, "cluster", spied)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(6, 100, 384, generator=generator).to("cuda", dtype)
    weights = (torch.rand(6, 100, generator=generator) > 0.2).float().cuda()
    found = []
    for kernels in (True, False):
        with monkeypatch.context() as patch:
            if not kernels:
                patch.setattr(reference, "runs_kernels", lambda _: False)
            own = tokens.clone().requires_grad_()
            clusters = kmeans(own, weights, 8, iterations=10)
            clusters.centroids.float().square().sum().backward()  # type: ignore[no-untyped-call]
            assert own.grad is not None
            found.append((clusters.assignments, own.grad.float()))
    assert chosen == [8] * by_kernel
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
