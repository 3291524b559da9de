"""Pooling as a module of sentence-transformers: in a model, on disk, in mixed precision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.model import load_model, representation_of
from pseudoquery.encoding.pooling import Pooling
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from tests.support.token_batches import A1, A2, B1, B2, batch, pooled, pooling


def features(**more: Tensor) -> dict[str, Tensor]:
    tokens = batch()
    return {"token_embeddings": tokens.embeddings, "attention_mask": tokens.weights.long(), **more}


def test_forward_takes_the_mask_of_special_tokens() -> None:
    out = pooling()(features(special_tokens_mask=batch().special.long()), task="document")
    assert torch.equal(out["token_embeddings"], pooled().values)
    assert torch.equal(out["attention_mask"], pooled().mask)


def test_forward_knows_special_tokens_by_their_ids() -> None:
    module = pooling()
    module.special_ids = torch.tensor([101, 102])
    ids = torch.tensor([[101, 5, 6, 7, 8, 102], [101, 5, 102, 0, 0, 0]])
    out = module(features(input_ids=ids), task="document")
    assert torch.equal(out["token_embeddings"], pooled().values)


def test_forward_of_a_query() -> None:
    out = pooling(query="tokens")(features(), task="query")
    assert torch.equal(out["attention_mask"], batch().weights.bool())
    assert "token_embeddings" in features()


def test_only_the_tokens_that_the_tokenizer_adds_are_special(
    tiny_model: MultiVectorEncoder,
) -> None:
    module = tiny_model[-1]
    assert isinstance(module, Pooling)
    tokenizer = tiny_model.tokenizer
    assert sorted(module.special_ids.tolist()) == [
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
    ]
    assert tokenizer.unk_token_id not in module.special_ids.tolist()


def test_pool_one_text() -> None:
    pooled_text = pooling().pool_one(torch.tensor([A1, A2, B1, B2]))
    assert pooled_text.tolist() == [[5.0, 0.0], [0.0, 3.0]]


SAVED = [
    Representation(
        documents="pseudo-queries",
        k=3,
        seeding="random",
        iterations=2,
        locality=0.5,
        mix_mean=0.25,
    ),
    Representation(documents="cls", query="cls", normalise=False, scale=1.0),
    Representation(documents="mean", special_tokens=True),
    Representation(documents="first", k=5, append="mean"),
    Representation(documents="learnt", k=3, append="cls"),
    Representation(documents="random", k=4),
    Representation(documents="tokens", query="tokens", score="max"),
]


@pytest.mark.parametrize("representation", SAVED, ids=lambda saved: saved.documents)
def test_save_and_load(
    representation: Representation, tiny_model_path: str, tmp_path: Path
) -> None:
    model = load_model(tiny_model_path, representation, device="cpu")
    if representation.documents == "learnt":
        with torch.no_grad():
            model.get_parameter("1.codes").add_(1.0)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    again = load_model(str(tmp_path / "saved"), device="cpu")
    assert representation_of(again) == representation
    texts = ["the king of the city", "a river", "who found the old book?"]
    for before, after in (
        (model.encode_document(texts), again.encode_document(texts)),
        (model.encode_query(texts), again.encode_query(texts)),
    ):
        assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    files = {path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    weights = tmp_path / "saved" / "1_Pooling" / "model.safetensors"
    assert weights.is_file() == (representation.documents == "learnt")


def test_a_model_saved_before_there_was_locality_has_none(
    tiny_model_path: str, tmp_path: Path
) -> None:
    model = load_model(tiny_model_path, preset("recommended", k=4, locality=2.0), device="cpu")
    model.save_pretrained(str(tmp_path), create_model_card=False)
    config = tmp_path / "1_Pooling" / "config.json"
    settings = json.loads(config.read_text())
    assert settings.pop("locality") == 2.0
    config.write_text(json.dumps(settings))
    assert representation_of(load_model(str(tmp_path), device="cpu")) == preset(
        "recommended", k=4, locality=0.0
    )


def test_learnt_codes_take_part_in_the_state(tiny_model_path: str) -> None:
    learnt = load_model(tiny_model_path, Representation(documents="learnt", k=3))
    assert learnt.state_dict()["1.codes"].shape == (3, 32)


def test_codes_are_taken_over_only_where_they_fit() -> None:
    learnt = pooling(documents="learnt")
    with torch.no_grad():
        learnt.codes.fill_(7.0)
    same, wider, other = (
        pooling(documents="learnt", scale=3.0),
        pooling(documents="learnt", k=3),
        pooling(),
    )
    for module in (same, wider, other):
        module.take_codes(learnt)
    assert (same.codes == 7).all()
    assert not (wider.codes == 7).any()
    assert not hasattr(other, "codes")


@pytest.mark.parametrize(
    ("name", "locality"),
    [
        ("recommended", 0.0),
        ("recommended", 1.0),
        ("single-vector", 0.0),
        ("paper", 0.0),
        ("late-interaction", 0.0),
    ],
)
def test_mixed_precision_is_for_the_encoder(name: str, locality: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features = {
        # Tokens that rounding leaves as they are, though not what is made of them.
        "token_embeddings": torch.randn(3, 40, 16, generator=generator).bfloat16().float(),
        "attention_mask": torch.ones(3, 40, dtype=torch.int64),
    }
    pooling = Pooling(dimension=16, **preset(name, k=4, locality=locality).settings())
    expected = pooling(dict(features), task="document")["token_embeddings"]
    with torch.autocast("cpu", torch.bfloat16):
        found = pooling(dict(features), task="document")["token_embeddings"]
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision_tells_the_clusters_but_not_their_means(dtype: torch.dtype) -> None:
    # Rounded to 1, the second token is as near to the first as to the others.
    middle = 1 + 2**-13
    tokens = torch.tensor([[[0.0, 1.0], [middle, 1.0], [2.0, 1.0], [2.0, 1.0]]])
    features = {"token_embeddings": tokens, "attention_mask": torch.ones(1, 4)}
    plain = pooling()(dict(features), task="document")["token_embeddings"]
    with torch.autocast("cpu", dtype):
        mixed = pooling()(dict(features), task="document")["token_embeddings"]
    torch.testing.assert_close(plain, torch.tensor([[[0.0, 1.0], [(middle + 4) / 3, 1.0]]]))
    assert mixed.dtype == torch.float32
    assert mixed.tolist() == [[[middle / 2, 1.0], [2.0, 1.0]]]


@pytest.mark.parametrize("locality", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tokens_too_large_for_mixed_precision(dtype: torch.dtype, locality: float) -> None:
    tokens = torch.tensor([[[1e6, 0.0], [9e5, 0.0], [0.0, -1e6], [0.0, -8e5]]])
    features = {"token_embeddings": tokens, "attention_mask": torch.ones(1, 4)}
    with torch.autocast("cpu", dtype):
        found = pooling(locality=locality)(features, task="document")["token_embeddings"]
    assert found.tolist() == [[[9.5e5, 0.0], [0.0, -9e5]]]
