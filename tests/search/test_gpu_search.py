"""The GPU's search against the scores' definition, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pseudoquery.method import gpu
from pseudoquery.method.representation import Score
from pseudoquery.method.scores import similarity_matrix
from pseudoquery.search import gpu_search
from pseudoquery.search.gpu_search import Documents, Tile, documents, search
from tests.support.score_table import TABLE
from tests.support.triton_device import DEVICE, INTERPRETED

# The interpreter multiplies bfloat16 numbers as if they were integers.
DTYPES = [torch.float16, torch.float32, torch.int8] + [torch.bfloat16] * (DEVICE == "cuda")
SMALL = Tile(vectors=32, queries=16, chunk=32, warps=4, stages=2)
seeds = st.integers(0, 2**32 - 1)
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # the interpreter's
few = settings(max_examples=8 if INTERPRETED else 50, deadline=None)


def drawn(chance: np.random.Generator, dtype: torch.dtype, *shape: int) -> Tensor:
    """Numbers of which any type holds each exactly, and single precision the sums of products."""
    return torch.from_numpy(chance.integers(-4, 5, size=shape)).to(dtype)


def corpus_of(
    chance: np.random.Generator, dtype: torch.dtype, counts: list[int], dimension: int
) -> tuple[Documents, Tensor, Tensor]:
    """Documents with so many vectors each, and the same padded for the reference."""
    flat = drawn(chance, dtype, sum(counts), dimension)
    scales = torch.from_numpy(chance.choice([0.5, 1.0, 2.0], size=len(flat))).float()
    offsets = torch.tensor([0, *counts]).cumsum(dim=0)
    values = flat.float() * scales[:, None] if dtype == torch.int8 else flat.float()
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    wide = torch.full((*mask.shape, dimension), 99.0)
    wide[mask] = values
    made = documents(
        flat.to(DEVICE), offsets.to(DEVICE), scales.to(DEVICE) if dtype == torch.int8 else None
    )
    return made, wide, mask


def reference(
    queries: Tensor, wide: Tensor, mask: Tensor, allowed: Tensor, top: int, **how: Any
) -> tuple[Tensor, Tensor]:
    """Sort all scores; what isn't allowed comes last, as number -1."""
    found = similarity_matrix(queries.float()[:, None], wide, documents_mask=mask, **how)
    numbers = torch.full((len(queries), top), -1)
    scores = torch.full((len(queries), top), -torch.inf)
    for row, own in enumerate(found):
        best = torch.tensor(
            sorted(np.flatnonzero(allowed), key=lambda number, own=own: -float(own[number]))[:top],  # type: ignore[misc]
            dtype=torch.int64,
        )
        numbers[row, : len(best)] = best
        scores[row, : len(best)] = own[best]
    return numbers, scores


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ["all keys", "selected", "parts", "streamed"])
def test_max_of_integers_is_the_references_with_all_its_ties(
    dtype: torch.dtype, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact numbers, so that equal scores are equal: they must come in the corpus's order."""
    if way == "selected":
        # So few are sampled that the bound and the detour both get their turn.
        for name, value in {"DENSE": 4, "SAMPLE": 3, "DEVIATIONS": 0, "SPARE": 1}.items():
            monkeypatch.setattr(gpu_search, name, value)
    elif way == "streamed":
        monkeypatch.setattr(gpu_search, "DENSE", 7)

    @few
    @given(
        seed=seeds,
        count=st.integers(1, 60),
        ragged=st.booleans(),
        top=st.integers(1, 12),
        asked=st.integers(1, 20),
        dimension=st.sampled_from([3, 32, 40]),
        share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    )
    def run(
        seed: int, count: int, ragged: bool, top: int, asked: int, dimension: int, share: float
    ) -> None:
        chance = np.random.default_rng(seed)
        counts = chance.integers(0 if ragged else 3, 6 if ragged else 4, size=count).tolist()
        counts = counts if any(counts) else [1] * count
        corpus, wide, mask = corpus_of(chance, dtype, counts, dimension)
        queries = drawn(chance, torch.float32, asked, dimension)
        allowed = torch.from_numpy(chance.random(count) < share)
        how: Any = {"score": "max", "scale": 0.5}
        expected = reference(queries, wide, mask, allowed, min(top, count), **how)
        there = queries.to(DEVICE)
        if way == "streamed":
            keys = gpu_search._best_of_host(
                on_host(corpus),
                gpu_search._question(corpus, there, top, 0.5, "max", SMALL),
                allowed.to(DEVICE),
                base=0,
            )
            found = gpu_search._decode(keys)
        else:
            cut = count // 3
            parts = [corpus.part(0, cut), corpus.part(cut, cut), corpus.part(cut, count)]
            given_ = parts if way == "parts" else corpus
            found = search(given_, there, top, allowed=allowed, tile=SMALL, **how)
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tolist() == expected[1].tolist()

    run()


def on_host(corpus: Documents) -> Documents:
    return Documents(
        corpus.vectors.cpu(),
        corpus.width,
        None if corpus.offsets is None else corpus.offsets.cpu(),
        None if corpus.scales is None else corpus.scales.cpu(),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("split", [True, False])
def test_softmax_of_floats_agrees_with_the_definition(dtype: torch.dtype, split: bool) -> None:
    @few
    @given(
        seed=seeds,
        count=st.integers(1, 40),
        k=st.integers(1, 17),
        asked=st.integers(1, 4),
        dimension=st.sampled_from([7, 64, 96]),
        scale=st.sampled_from([0.1, 1.0, 20.0]),
    )
    def run(seed: int, count: int, k: int, asked: int, dimension: int, scale: float) -> None:
        chance = np.random.default_rng(seed)
        values = torch.from_numpy(chance.normal(size=(count, k, dimension))).float()
        values /= dimension**0.5
        queries = torch.from_numpy(chance.normal(size=(asked, dimension))).float() / dimension**0.5
        scales = None
        if dtype == torch.int8:
            scales = values.abs().amax(dim=-1) / 127
            stored = (values / scales[..., None]).round().to(torch.int8)
            values = stored.float() * scales[..., None]
        else:
            stored = values.to(dtype)
            values = stored.float()
        half = torch.float16 if dtype == torch.int8 else dtype
        queries = queries if split else queries.to(half)
        corpus = documents(stored.to(DEVICE), scales=None if scales is None else scales.to(DEVICE))
        numbers, found = search(corpus, queries.to(DEVICE), count, scale=scale, tile=SMALL)
        truth = similarity_matrix(
            queries.double()[:, None], values.double(), score="softmax", scale=scale
        )
        rounding = 1e-4 if dtype == torch.bfloat16 else 1e-5
        assert numbers.sort(dim=1).values.tolist() == [list(range(count))] * asked
        torch.testing.assert_close(
            found.cpu().double(), truth.gather(1, numbers.cpu()), atol=rounding * scale, rtol=0.0
        )
        assert (found.diff(dim=1) <= 0).all()

    run()


@pytest.mark.parametrize("score", ["softmax", "max"])
@pytest.mark.parametrize(("sampled", "detour"), [("like all", 0), ("worse", 1), ("better", 1)])
def test_selection_finds_what_sorting_finds(
    score: str, sampled: str, detour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order of the corpus, also one in which the sampled documents are unlike the others."""
    for name, value in {"DENSE": 16, "SAMPLE": 5, "DEVIATIONS": 1, "SPARE": 2}.items():
        monkeypatch.setattr(gpu_search, name, value)
    chance = np.random.default_rng(0)
    values = torch.from_numpy(chance.normal(size=(300, 2, 8))).half()
    queries = torch.from_numpy(chance.normal(size=(2, 8))).float()
    if sampled != "like all":
        values, queries = values.abs(), queries.abs()
        values[:: gpu_search.SAMPLE] *= 0 if sampled == "worse" else 100
    in_pieces = Mock(wraps=gpu_search._best_in_pieces)
    monkeypatch.setattr(gpu_search, "_best_in_pieces", in_pieces)
    how = cast(Score, score)
    numbers, found = search(
        documents(values.to(DEVICE)), queries.to(DEVICE), 7, score=how, tile=SMALL
    )
    truth = similarity_matrix(queries[:, None], values.float(), score=how)
    expected = truth.sort(dim=1, descending=True, stable=True)
    assert numbers.tolist() == expected.indices[:, :7].tolist()
    torch.testing.assert_close(found.cpu(), expected.values[:, :7])
    assert in_pieces.call_count == detour


def test_a_document_without_vectors_comes_last_and_zeros_are_equal() -> None:
    flat = torch.tensor([[-1, 0], [0, 0], [0, 0]], dtype=torch.int8, device=DEVICE)
    offsets = torch.tensor([0, 0, 1, 2, 3], device=DEVICE)
    # The second document's zero is a negative one.
    corpus = documents(flat, offsets, torch.tensor([1.0, -1.0, 1.0], device=DEVICE))
    numbers, found = search(corpus, torch.tensor([[1.0, 0.0]], device=DEVICE), 9, score="max")
    assert numbers.tolist() == [[2, 3, 1, 0]]
    assert found.tolist() == [[0.0, 0.0, -1.0, -np.inf]]


@pytest.mark.parametrize("shared", [gpu.SHARED, 227 << 10])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8])
def test_a_tile_fits_into_shared_memory(dtype: torch.dtype, shared: int) -> None:
    for parts in {torch.float32: [1], torch.int8: [3]}.get(dtype, [1, 2]):
        for queries in (1, 16, 17, 64, 65, 1000):
            tile = Tile.fitting(queries, dtype, parts, shared)
            rows = tile.vectors + parts * tile.queries
            assert rows * tile.chunk * dtype.itemsize * tile.stages <= shared


def test_what_overflows_is_seen() -> None:
    corpus = documents(torch.full((2, 2, 4), 6e4, device=DEVICE).half())
    ask = torch.full((1, 4), 6e4, device=DEVICE)
    numbers, found = search(corpus, ask, 2, scale=1e30)
    assert numbers.tolist() == [[0, 1]]
    assert not found.isfinite().any()


def test_nothing_to_find() -> None:
    corpus = documents(torch.ones(3, 2, 4, device=DEVICE).half())
    nobody = torch.zeros(3, dtype=torch.bool, device=DEVICE)
    numbers, found = search(corpus, torch.ones(1, 4, device=DEVICE), 2, allowed=nobody)
    assert numbers.tolist() == [[-1, -1]]
    assert found.tolist() == [[-np.inf, -np.inf]]
    empty = documents(torch.ones(0, 2, 4, device=DEVICE).half())
    assert search(empty, torch.ones(1, 4, device=DEVICE), 2)[0].shape == (1, 0)
    assert search([], torch.ones(1, 4, device=DEVICE), 2)[0].shape == (1, 0)


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        documents(torch.zeros(3, 2, 4).double())
    with pytest.raises(ValueError, match="300 vectors; at most 256"):
        search(documents(torch.zeros(3, 300, 4).half()), torch.zeros(1, 4), 2)
    with pytest.raises(ValueError, match="scale is -1"):
        search(documents(torch.zeros(3, 2, 4).half()), torch.zeros(1, 4), 2, scale=-1)
    with pytest.raises(ValueError, match="5 scales for 6 vectors"):
        documents(torch.zeros(3, 2, 4, dtype=torch.int8), scales=torch.ones(5))


@pytest.mark.parametrize("score", ["softmax", "max"])
@pytest.mark.parametrize(("dots", "expected"), TABLE)
def test_the_kernels_scores_are_those_of_the_table(
    dots: list[float], expected: dict[Score, float], score: Score
) -> None:
    """With the query (1, 0, ...), a vector's first number is its dot product."""
    vectors = torch.nn.functional.pad(torch.tensor(dots, device=DEVICE)[:, None], (0, 31))
    query = torch.nn.functional.pad(torch.ones(1, 1, device=DEVICE), (0, 31))
    for more in (0, 2):  # a second document makes the first one's vectors be padded
        counts = [len(dots), len(dots) + more]
        both = torch.cat([vectors, vectors, vectors[:1].expand(more, -1) - 600])
        corpus = documents(both, torch.tensor([0, *counts], device=DEVICE).cumsum(dim=0))
        found, scores = search(corpus, query, 2, score=score, tile=SMALL)
        own = dict(zip(found[0].tolist(), scores[0].tolist(), strict=True))
        assert own[0] == pytest.approx(expected[score], rel=1e-5, abs=1e-5)
