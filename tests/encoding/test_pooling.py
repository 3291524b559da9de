from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.encoding.pooling import Pooling, Tokens
from tests.support.token_batches import (
    A1,
    A2,
    B1,
    B2,
    CLS,
    KINDS,
    LONG,
    SHORT,
    batch,
    kept,
    pooled,
    pooling,
    random_tokens,
)

# Document vectors, by hand


def test_pseudo_queries() -> None:
    vectors = pooled()
    assert kept(vectors) == [[5.0, 0.0], [0.0, 3.0]]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert vectors.owners.tolist() == [[-1, 0, 0, 1, 1, -1], [-1, 0, -1, -1, -1, -1]]


def test_pseudo_queries_weigh_tokens() -> None:
    tokens = batch()
    tokens.weights[0, 2] = 3.0
    assert kept(pooling().vectors(tokens)) == [[5.5, 0.0], [0.0, 3.0]]


def test_cls() -> None:
    vectors = pooled(documents="cls")
    assert kept(vectors) == [CLS]
    assert kept(vectors, 1) == [[1.0, 1.0]]
    assert vectors.owners.tolist() == [[0, -1, -1, -1, -1, -1]] * 2


def test_mean() -> None:
    vectors = pooled(documents="mean")
    assert kept(vectors) == [[2.5, 1.5]]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert vectors.owners.tolist() == [[-1, 0, 0, 0, 0, -1], [-1, 0, -1, -1, -1, -1]]


def test_first() -> None:
    vectors = pooled(documents="first")
    assert kept(vectors) == [A1, A2]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert vectors.owners.tolist() == [[-1, 0, 1, -1, -1, -1], [-1, 0, -1, -1, -1, -1]]


def test_random() -> None:
    vectors = pooled(documents="random")
    assert len(kept(vectors)) == 2
    words = [A1, A2, B1, B2]
    drawn = [words.index(vector) for vector in vectors.values[0].tolist()]
    assert drawn[0] < drawn[1]
    assert vectors.owners[0].tolist() == [
        -1,
        *(drawn.index(i) if i in drawn else -1 for i in range(4)),
        -1,
    ]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert kept(pooled(documents="random", k=4)) == words


def test_stretches() -> None:
    vectors = pooled(documents="stretches")
    assert kept(vectors) == [[5.0, 0.0], [0.0, 3.0]]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert vectors.owners.tolist() == [[-1, 0, 0, 1, 1, -1], [-1, 1, -1, -1, -1, -1]]
    assert kept(pooled(documents="stretches", k=9)) == [A1, A2, B1, B2]


def test_stretches_are_of_equal_weight() -> None:
    tokens = batch()
    tokens.weights[0, 1] = 3.0
    vectors = pooling(documents="stretches").vectors(tokens)
    assert kept(vectors) == [A1, [2.0, 2.0]]


@given(n=st.integers(1, 60), k=st.integers(1, 20))
def test_stretches_differ_by_one_token_at_most(n: int, k: int) -> None:
    tokens = random_tokens(0, [n + 2])
    vectors = pooling(documents="stretches", k=k).vectors(tokens)
    owners = vectors.owners[0, 1:-1].tolist()
    assert owners == sorted(owners)
    lengths = [owners.count(stretch) for stretch in set(owners)]
    assert len(lengths) == min(n, k)
    assert max(lengths) - min(lengths) <= 1


def test_learnt() -> None:
    module = pooling(documents="learnt")
    with torch.no_grad():
        module.codes.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    vectors = module.vectors(batch())
    heat = torch.softmax(torch.tensor([4.0, 6.0, 0.0, 0.0]), 0)
    attended = heat @ torch.tensor([A1, A2, B1, B2])
    assert kept(vectors) == [attended.tolist(), [2.5, 1.5]]
    assert kept(vectors, 1) == [[3.0, 4.0], [3.0, 4.0]]
    # The second code looks at all words alike, the first at A2 above all.
    assert vectors.owners[0].tolist() == [-1, 1, 0, 1, 1, -1]


def test_learnt_codes_are_trained() -> None:
    module = pooling(documents="learnt")
    module.vectors(batch()).values.square().sum().backward()  # type: ignore[no-untyped-call]
    assert module.codes.grad is not None
    assert (module.codes.grad != 0).any()
    assert module.codes.grad.isfinite().all()


def test_learnt_codes_need_a_dimension() -> None:
    with pytest.raises(ValueError, match="dimension"):
        Pooling(documents="learnt")


def test_learnt_codes_leave_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    first, second = pooling(documents="learnt"), pooling(documents="learnt")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.codes, second.codes)
    assert not torch.equal(first.codes[0], first.codes[1])


def test_tokens() -> None:
    vectors = pooled(documents="tokens")
    assert kept(vectors) == [A1, A2, B1, B2]
    assert kept(vectors, 1) == [[3.0, 4.0]]
    assert vectors.owners[0].tolist() == [-1, 1, 2, 3, 4, -1]


# Each setting changes the result


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mean", [[10 / 6, 16 / 6]]),
        ("first", [CLS, A1]),
        ("tokens", LONG),
        ("pseudo-queries", [CLS, [0.2, 1.4]]),
    ],
)
def test_special_tokens(kind: str, expected: list[list[float]]) -> None:
    assert kept(pooled(documents=kind, special_tokens=True)) == expected
    assert kept(pooled(documents=kind)) != expected


def test_special_tokens_in_random_and_learnt() -> None:
    for kind in ("random", "learnt"):
        with_them = pooled(documents=kind, special_tokens=True, k=6)
        assert with_them.owners[0].min() >= (0 if kind == "random" else -1)
        assert not torch.equal(with_them.values[0], pooled(documents=kind, k=6).values[0])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k(k: int) -> None:
    for kind in ("pseudo-queries", "first", "random", "learnt", "stretches"):
        assert len(kept(pooled(documents=kind, k=k))) == k


def test_seeding_and_iterations() -> None:
    tokens = random_tokens(3, [40])
    plain = pooling(k=5).vectors(tokens).values
    for change in ({"seeding": "random"}, {"seeding": "released"}, {"iterations": 0}):
        assert not torch.equal(pooling(k=5, **change).vectors(tokens).values, plain)


def test_locality() -> None:
    # By content the words alternate; by place the text has two halves.
    words = torch.tensor([[A1, B1, A2, B2, A1, B1, A2, B2]])
    tokens = Tokens(words, torch.ones(1, 8), torch.zeros(1, 8, dtype=torch.bool))
    owners = {
        locality: pooling(seeding="released", locality=locality).vectors(tokens).owners.tolist()
        for locality in (0.0, 20.0)
    }
    assert owners[0.0] != owners[20.0]
    assert owners[20.0] == [sorted(owners[20.0][0])]
    assert set(owners[20.0][0]) == {0, 1}


def test_special_tokens_that_take_no_part_have_no_place() -> None:
    tokens = random_tokens(5, [30])
    regular = Tokens(*(part[:, 1:-1] for part in tokens))
    module = pooling(k=4, locality=1.0)
    bare, whole = module.vectors(regular), module.vectors(tokens)
    assert whole.owners[0, 1:-1].tolist() == bare.owners[0].tolist()
    torch.testing.assert_close(whole.values, bare.values)


def test_locality_is_for_clusters_alone() -> None:
    tokens = random_tokens(3, [40])
    for kind in KINDS:
        plain, local = (
            Pooling(dimension=4, documents=kind, locality=locality) for locality in (0.0, 20.0)
        )
        same = torch.equal(local.vectors(tokens).values, plain.vectors(tokens).values)
        assert same == (kind != "pseudo-queries")
        query, other = (one.vectors(tokens, "query").values for one in (plain, local))
        assert torch.equal(query, other)


def test_mix_mean() -> None:
    # The mean that is mixed in is the encoder's own, of all tokens: [10/6, 16/6].
    vectors = pooled(mix_mean=0.5)
    assert kept(vectors) == [[5 + 5 / 6, 8 / 6], [5 / 6, 3 + 8 / 6]]
    assert kept(vectors, 1) == [[3 + 11 / 6, 4 + 12 / 6]]
    assert torch.equal(vectors.owners, pooled().owners)
    assert kept(pooled("query", query="cls", mix_mean=0.5)) == [CLS]


def test_append_cls() -> None:
    vectors = pooled(append="cls")
    assert kept(vectors) == [[5.0, 0.0], [0.0, 3.0], CLS]
    assert kept(vectors, 1) == [[3.0, 4.0], [1.0, 1.0]]
    assert vectors.owners[0].tolist() == [2, 0, 0, 1, 1, -1]
    assert len(kept(pooled("query", append="cls"))) == 1


def test_append_mean() -> None:
    vectors = pooled(append="mean")
    assert kept(vectors) == [[5.0, 0.0], [0.0, 3.0], [2.5, 1.5]]
    assert vectors.owners[0].tolist() == [-1, 0, 0, 1, 1, -1]


@pytest.mark.parametrize("task", ["query", "document"])
def test_normalise(task: str) -> None:
    raw, unit = pooled(task), pooled(task, normalise=True)
    assert torch.equal(raw.mask, unit.mask)
    lengths = raw.values[raw.mask].norm(dim=-1, keepdim=True)
    assert (lengths > 1.1).all()
    torch.testing.assert_close(unit.values[unit.mask], raw.values[raw.mask] / lengths)


def test_normalise_follows_the_mix() -> None:
    raw = pooled(mix_mean=1.0).values[0]
    unit = pooled(mix_mean=1.0, normalise=True).values[0]
    torch.testing.assert_close(unit, raw / raw.norm(dim=-1, keepdim=True))


def test_query_vectors() -> None:
    assert kept(pooled("query", query="cls")) == [CLS]
    assert kept(pooled("query", query="mean")) == [[10 / 6, 16 / 6]]
    assert kept(pooled("query", query="tokens")) == LONG
    assert kept(pooled("query", query="tokens"), 1) == SHORT
    assert kept(pooled("query", query="mean"), 1) == [[11 / 3, 4.0]]


def test_no_task_means_document() -> None:
    assert torch.equal(pooling().vectors(batch()).values, pooled("document").values)


# Edge cases


@pytest.mark.parametrize("normalise", [True, False])
def test_cluster_of_opposite_tokens_is_dropped(normalise: bool) -> None:
    tokens = Tokens(
        torch.tensor([[[1.0, 0.0], [-1.0, 0.0], [0.0, 50.0], [0.0, 50.0]]]),
        torch.ones(1, 4),
        torch.zeros(1, 4, dtype=torch.bool),
    )
    vectors = pooling(normalise=normalise).vectors(tokens)
    assert vectors.mask.tolist() == [[False, True]]
    assert kept(vectors) == [[0.0, 1.0 if normalise else 50.0]]
    assert vectors.values.isfinite().all()


@pytest.mark.parametrize("special_tokens", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_text_of_special_tokens_alone_has_no_vectors(kind: str, special_tokens: bool) -> None:
    tokens = batch()
    tokens.special[1] = True
    extra = {} if kind == "tokens" else {"append": "cls", "mix_mean": 0.5}
    module = pooling(documents=kind, special_tokens=special_tokens, normalise=True, **extra)
    vectors = module.vectors(tokens)
    assert not vectors.mask[1].any()
    assert vectors.mask[0].any()
    assert (vectors.owners[1] == -1).all()
    assert vectors.values.isfinite().all()


@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    special_tokens=st.booleans(),
    append=st.sampled_from(["none", "cls", "mean"]),
    task=st.sampled_from(["query", "document"]),
    locality=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_padding_changes_no_vector(
    seed: int,
    lengths: list[int],
    kind: str,
    special_tokens: bool,
    append: str,
    task: str,
    locality: float,
) -> None:
    if kind == "tokens":
        append = "none"
    module = Pooling(
        dimension=4,
        documents=kind,
        special_tokens=special_tokens,
        append=append,
        k=3,
        locality=locality,
    )
    together = module.vectors(random_tokens(seed, lengths, extra=3), task)
    tokens = random_tokens(seed, lengths)
    for row, n in enumerate(lengths):
        one = Tokens(*(part[row : row + 1, :n] for part in tokens))
        alone = module.vectors(one, task)
        torch.testing.assert_close(
            together.values[row][together.mask[row]], alone.values[0][alone.mask[0]]
        )
        assert together.owners[row, :n].tolist() == alone.owners[0].tolist()
        assert (together.owners[row, n:] == -1).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([kind for kind in KINDS if kind != "learnt"]),
    n=st.integers(3, 20),
    locality=st.sampled_from([0.0, 1.0]),
)
def test_owner_is_the_vector_with_the_tokens_largest_share(
    seed: int, kind: str, n: int, locality: float
) -> None:
    tokens = random_tokens(seed, [n])
    moving = tokens.embeddings.clone().requires_grad_()
    module = Pooling(dimension=4, documents=kind, k=3, normalise=False, locality=locality)
    vectors = module.vectors(tokens._replace(embeddings=moving))
    # A vector is a sum of shares of tokens, so its gradient at a token is the token's share.
    shares = torch.stack(
        [
            torch.autograd.grad(vector[0], moving, retain_graph=True)[0][0, :, 0]
            for vector in vectors.values[0]
        ]
    ).masked_fill(~vectors.mask[0][:, None], 0.0)
    torch.testing.assert_close(
        shares @ tokens.embeddings[0], vectors.values[0] * vectors.mask[0][:, None]
    )
    largest, owners = shares.max(dim=0)
    assert vectors.owners[0].tolist() == owners.masked_fill(largest == 0, -1).tolist()


def test_gradient_reaches_the_tokens() -> None:
    tokens = batch()
    moving = tokens.embeddings.clone().requires_grad_()
    values = pooling().vectors(tokens._replace(embeddings=moving)).values
    (gradient,) = torch.autograd.grad(values[0].sum(), moving)
    assert gradient[0, :, 0].tolist() == [0.0, 0.5, 0.5, 0.5, 0.5, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind: str, dtype: torch.dtype) -> None:
    tokens = batch()
    module = pooling(documents=kind, normalise=True).to(dtype)
    vectors = module.vectors(tokens._replace(embeddings=tokens.embeddings.to(dtype)))
    assert vectors.values.dtype == dtype
    exact = pooling(documents=kind, normalise=True).vectors(tokens)
    assert torch.equal(vectors.mask, exact.mask)
    torch.testing.assert_close(
        vectors.values[vectors.mask].float(), exact.values[exact.mask], atol=2e-2, rtol=2e-2
    )
