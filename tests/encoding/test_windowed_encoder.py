from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding import token_cache
from pseudoquery.encoding import windowed_encoder as windowed
from pseudoquery.encoding.embed import embed
from pseudoquery.encoding.encode import encode_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import Tokens, pooling_of
from pseudoquery.encoding.token_cache import Windowed, tokenise
from pseudoquery.encoding.windowed_encoder import collate, encode_windowed
from pseudoquery.encoding.windows import Task, split, window_length
from pseudoquery.method.presets import PRESETS, preset
from pseudoquery.method.representation import Representation
from tests.conftest import TINY_TOKENS, WORDS

EVERY = {
    **PRESETS,
    **{
        kind: preset("recommended", documents=kind, k=4, mix_mean=0.0)
        for kind in ("cls", "mean", "first", "learnt", "random", "stretches", "tokens")
    },
    "random seeding": preset("recommended", seeding="random", k=4),
    "several queries": preset("recommended", query="tokens", score="max", k=4),
    "appended": preset("recommended", append="cls", k=4),
}
TASKS: tuple[Task, ...] = ("query", "document")
words = st.sampled_from([*WORDS.split(), "[SEP]", "[MASK]", "x", "?", "unsagbar", "\n"])
texts = st.lists(
    st.one_of(
        st.lists(words, max_size=12).map(" ".join),
        st.lists(words, min_size=40, max_size=200).map(" ".join),
        st.text(max_size=20),
    ),
    min_size=1,
    max_size=6,
)


def with_representation(model: MultiVectorEncoder, settings: Representation) -> MultiVectorEncoder:
    """The same encoder with other vectors, without loading it anew."""
    modules: list[Any] = list(model)[:-1]
    pooling = type(pooling_of(model))(dimension=32, **settings.settings())
    return windowed.WindowedEncoder(modules=[*modules, pooling], device="cpu").eval()


def vectors(model: MultiVectorEncoder, batch: list[Windowed], task: Task) -> list[Tensor]:
    """What the model makes of a windowed batch."""
    with torch.no_grad():
        made = model(collate(batch), task=task)
    return [
        own[mask]
        for own, mask in zip(made["token_embeddings"], made["attention_mask"], strict=True)
    ]


def one_by_one(
    model: MultiVectorEncoder, text: str, task: Task, most: int | None = None
) -> list[Tensor]:
    """The kept tokens of a text, its windows read one by one, pooled as an index does."""
    windows, _ = split(model, [text], task, "windows")
    (limited,) = tokenise(model, [text], task, most)
    chosen = [
        replace(window, kept=kept) for window, kept in zip(windows, limited.kept, strict=False)
    ]
    tokens = torch.cat([embed(model, [window], task)[0] for window in chosen])
    special = torch.cat([torch.from_numpy(one.special[one.kept]) for one in chosen])
    with torch.no_grad():
        made = pooling_of(model).vectors(
            Tokens(tokens[None], torch.ones(1, len(tokens)), special[None]), task
        )
    return [made.values[0][made.mask[0]]]


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=8)
@given(data=texts)
def test_a_windowed_batch_is_what_an_index_encodes(
    tiny_model: MultiVectorEncoder, name: str, data: list[str]
) -> None:
    model = with_representation(tiny_model, EVERY[name])
    for task in TASKS:
        expected = [
            torch.from_numpy(encoded.vectors) for encoded in encode_texts(model, data, task)
        ]
        tokenised = tokenise(model, data, task)
        close(vectors(model, tokenised, task), expected)
        apart: dict[int, Tensor] = {}
        for values, mask, places in encode_windowed(model, tokenised, task):
            apart |= {place: values[row][mask[row]] for row, place in enumerate(places)}
        close([apart[place] for place in range(len(data))], expected)


@settings(max_examples=25)
@given(data=texts, most=st.integers(1, 200))
def test_the_limit_keeps_the_first_tokens(
    tiny_model: MultiVectorEncoder, data: list[str], most: int
) -> None:
    special = pooling_of(tiny_model).special_ids
    whole = tokenise(tiny_model, data, "document")
    limited = tokenise(tiny_model, data, "document", most)

    def regular(text: Windowed) -> list[int]:
        kept = np.concatenate([ids[keep] for ids, keep in zip(text.ids, text.kept, strict=True)])
        return [int(one) for one in kept[~np.isin(kept, special.numpy())]]

    for own, all_of_it, text in zip(limited, whole, data, strict=True):
        assert len(own) <= most
        assert len(own) == most or regular(own) == regular(all_of_it)
        assert regular(all_of_it)[: len(regular(own))] == regular(own)
        assert all(keep.any() for keep in own.kept), "no window is read for nothing"
        close(
            vectors(tiny_model, [own], "document"), one_by_one(tiny_model, text, "document", most)
        )


@given(data=texts)
@settings(max_examples=20)
def test_a_limit_of_one_window_is_truncation(
    tiny_model: MultiVectorEncoder, data: list[str]
) -> None:
    limited = tokenise(tiny_model, data, "document", window_length(tiny_model))
    assert all(len(text.ids) == 1 for text in limited)
    expected = encode_texts(tiny_model, data, "document", "truncate")
    close(
        vectors(tiny_model, limited, "document"),
        [torch.from_numpy(one.vectors) for one in expected],
    )


@pytest.mark.parametrize("name", EVERY)
def test_the_gradient_is_that_of_a_plain_batch(tiny_model_path: str, name: str) -> None:
    model = load_model(tiny_model_path, EVERY[name], device="cpu").eval()
    data = ["the king", "who was the queen of the river and of the old town", "moon", ""]
    plain = dict(model.tokenizer(data, padding=True, return_tensors="pt"))
    gradients = []
    for features in (plain, collate(tokenise(model, data, "document"))):
        model.zero_grad()
        made = model(dict(features), task="document")
        values = made["token_embeddings"][made["attention_mask"].bool()]
        chance = torch.Generator().manual_seed(0)
        (values * torch.randn(values.shape, generator=chance)).sum().backward()
        gradients.append(
            {key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys()
    assert any(bool(one.any()) for one in gradients[0].values())
    for key, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], expected, rtol=1e-3, atol=1e-5)


def test_every_window_of_a_long_text_gets_a_gradient(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("single-vector"), device="cpu").eval()
    words = WORDS.split()[:100]
    text = " ".join(words)
    model(collate(tokenise(model, [text], "document")), task="document")[
        "token_embeddings"
    ].square().sum().backward()
    encoder: Any = model[0]
    grown = encoder.auto_model.embeddings.word_embeddings.weight.grad
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert bool((grown[torch.tensor(ids)].abs().sum(dim=1) > 0).all())


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize("few_shapes", [False, True])
def test_batches_and_shapes_change_nothing(
    tiny_model: MultiVectorEncoder, limit: int, few_shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [" ".join(WORDS.split()[start : start + 3 * start]) for start in range(1, 40, 3)]
    expected = encode_texts(tiny_model, data, "document")
    monkeypatch.setattr(token_cache, "TEXTS_AT_ONCE", 4)
    monkeypatch.setitem(windowed.ENCODED_TOKENS, "cpu", limit)
    monkeypatch.setattr(windowed, "LENGTHS", 7)
    monkeypatch.setattr(windowed, "WIDTHS", 16)
    monkeypatch.setattr(windowed, "_wants_few_shapes", lambda _: few_shapes)
    batches = encode_windowed(tiny_model, tokenise(tiny_model, data, "document"), "document")
    assert len(batches) > 1
    assert sorted(place for *_, own in batches for place in own) == list(range(len(data)))
    for values, mask, own in batches:
        for row, place in enumerate(own):
            close([values[row][mask[row]]], [torch.from_numpy(expected[place].vectors)])


def test_padding_is_nothing(tiny_model: MultiVectorEncoder) -> None:
    """A short text beside a long one has many empty windows; they change nothing."""
    short, long = tokenise(tiny_model, ["the king", "river " * 5 * TINY_TOKENS], "document")
    batch = collate([short, long])
    assert batch["input_ids"].shape[:2] == (2, len(long.ids))
    assert int(batch["attention_mask"][0].sum()) == len(short) == 4
    assert not batch["kept"][0, 1:].any()
    (alone,) = vectors(tiny_model, [short], "document")
    close([vectors(tiny_model, [short, long], "document")[0]], [alone])


def test_few_shapes() -> None:
    lengths = [3, 0, 64, 65, 256, 300, 512, 70]
    groups = list(windowed._batches_alike(lengths, few_shapes=True))
    assert [(width, real, len(rows)) for rows, width, real in groups] == [
        (64, 2, 32),
        (256, 3, 32),
        (512, 2, 32),
    ]
    seen = [row for rows, _, real in groups for row in rows[:real].tolist()]
    assert sorted(seen) == [0, 2, 3, 4, 5, 6, 7], "an empty window is in no group"
    for rows, width, real in groups:
        assert set(rows[real:].tolist()) <= {int(rows[0])}, "only a row of the group is repeated"
        assert max(lengths[row] for row in rows.tolist()) <= width


@settings(max_examples=20, deadline=None)
@given(data=st.lists(st.text(max_size=300), max_size=4), most=st.none() | st.integers(1, 90))
def test_what_is_cached_is_the_same(
    tiny_model: MultiVectorEncoder, data: list[str], most: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "tokens"
        expected = tokenise(tiny_model, data, "document", most)
        for _ in range(2):
            found = tokenise(tiny_model, data, "document", most, cache)
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                for mine, theirs in ((one.ids, other.ids), (one.kept, other.kept)):
                    assert [own.tolist() for own in mine] == [own.tolist() for own in theirs]
        assert len(list(cache.iterdir())) == 1


def test_a_cache_tells_texts_and_settings_apart(
    tiny_model: MultiVectorEncoder, tmp_path: Path
) -> None:
    for texts, most in ((["a b", "c"], None), (["a", "b c"], None), (["a b", "c"], 3)):
        tokenise(tiny_model, texts, "document", most, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    limit = tiny_model.max_seq_length
    tiny_model.max_seq_length = 16
    tokenise(tiny_model, ["a b", "c"], "document", None, tmp_path)
    tiny_model.max_seq_length = limit
    assert len(list(tmp_path.iterdir())) == 4
