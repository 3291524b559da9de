"""OpenVINO against torch, which is the reference: the same weights must give the same vectors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder
from torch import Tensor
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    RobertaConfig,
    RobertaModel,
)

from pseudoquery.encoding import openvino
from pseudoquery.encoding.embed import TokenEncoder
from pseudoquery.encoding.encode import encode_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.precision import available, in_precision
from pseudoquery.errors import ModelError
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from tests.conftest import TINY_DIMENSION, TINY_TOKENS, WORDS
from tests.support.collection import DOCUMENTS
from tests.support.command import Run

pytest.importorskip("openvino")
LONG = "the king and the queen of the river city " * 40
TEXTS = ["", "the king", "what is the name of the river?", LONG, "[SEP] 东京 of the city"]


@pytest.fixture(scope="module")
def exact(tiny_model: MultiVectorEncoder) -> MultiVectorEncoder:
    return in_precision(tiny_model, "openvino-float32")


def exported(cache: Path) -> list[Path]:
    return sorted((cache / "pseudoquery" / "openvino").glob("*/encoder.xml"))


@given(texts=st.lists(st.lists(st.sampled_from(WORDS.split()), max_size=150), max_size=6))
def test_agrees_with_torch(
    texts: list[list[str]], exact: MultiVectorEncoder, tiny_model: MultiVectorEncoder
) -> None:
    written = [" ".join(words) for words in texts]
    for task in ("query", "document"):
        expected = encode_texts(tiny_model, written, task)
        found = encode_texts(exact, written, task)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.spans, other.spans)
            if len(one.owners) <= TINY_TOKENS:  # a near tie may end elsewhere in a long text
                np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-4)


@pytest.mark.parametrize(
    ("precision", "far"),
    [("openvino-float32", 1e-5), ("openvino-bfloat16", 0.02), ("openvino-int8", 0.02)],
)
def test_tokens_are_near_those_of_torch(precision: str, far: float, tiny_model_path: str) -> None:
    tokens = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
    expected = encode_texts(tokens, TEXTS, "document")
    found = encode_texts(in_precision(tokens, precision), TEXTS, "document")
    for one, other in zip(found, expected, strict=True):
        apart = 1 - (one.vectors * other.vectors).sum(axis=1)
        assert np.abs(apart).max(initial=0) <= far
    if precision == "openvino-int8" or (precision == "openvino-bfloat16" and has_bfloat16()):
        assert not np.array_equal(found[3].vectors, expected[3].vectors), "it makes a difference"


def has_bfloat16() -> bool:
    return "BF16" in openvino._openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class Linear(torch.nn.Module):
    """The least encoder: rows of a table, times a matrix."""

    task = None

    def __init__(self, table: Tensor, matrix: Tensor) -> None:
        super().__init__()
        self.table, self.matrix = torch.nn.Parameter(table), torch.nn.Parameter(matrix)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        embedded = self.table[input_ids] * attention_mask[..., None]
        return torch.nn.functional.linear(embedded, self.matrix)


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_rounded_to_the_nearest_of_255(seed: int) -> None:
    torch.manual_seed(seed)
    matrix = torch.randn(24, 64) * torch.logspace(-6, 6, 24)[:, None]
    matrix[5] = 0
    engine = openvino._openvino()
    network = openvino._export(engine, Linear(torch.randn(10, 64), matrix))  # type: ignore[arg-type]
    openvino._round_weights(engine, network)
    (product,) = [node for node in network.get_ops() if node.get_type_name() == "MatMul"]
    scaled = product.input_value(1).get_node()
    codes = scaled.input_value(0).get_node().input_value(0).get_node().get_data()
    scales = scaled.input_value(1).get_node().get_data()
    assert codes.dtype == np.int8
    largest = np.abs(matrix.numpy()).max(axis=1, keepdims=True)
    steps = np.where(largest > 0, largest / 127, 1)
    np.testing.assert_allclose(scales, steps, rtol=1e-6)
    assert (np.abs(codes * scales - matrix.numpy()) <= 0.5001 * steps).all()
    assert (np.abs(codes).max(axis=1) == 127 * (largest[:, 0] > 0)).all()


def test_rounded_weights_are_used() -> None:
    torch.manual_seed(0)
    encoder = Linear(torch.randn(10, 64), torch.randn(24, 64))
    ids = torch.arange(10)[None]
    expected = encoder(ids, torch.ones_like(ids)).detach()
    rough: Any = openvino._compile(encoder, "openvino-int8")  # type: ignore[arg-type]
    error = (rough(ids, torch.ones_like(ids)) - expected).norm() / expected.norm()
    assert 1e-4 < error < 0.02


def models() -> Iterator[tuple[str, torch.nn.Module]]:
    size: dict[str, Any] = {
        "vocab_size": 90,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 80,
    }
    marks: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    classes: dict[str, Any] = {"cls_token_id": 1, "sep_token_id": 2}
    roberta: Any = RobertaModel
    yield "roberta", roberta(RobertaConfig(**size, pad_token_id=0))
    yield "modernbert", ModernBertModel(ModernBertConfig(**size, **marks, **classes))
    small = DistilBertConfig(vocab_size=90, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    yield "distilbert", DistilBertModel(small)


class Part(torch.nn.Module):
    """A transformer as sentence-transformers' module is asked for it."""

    def __init__(self, transformer: torch.nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return {"token_embeddings": self.transformer(**features).last_hidden_state}


@pytest.mark.parametrize(("name", "transformer"), list(models()))
def test_other_encoders(name: str, transformer: torch.nn.Module) -> None:
    encoder = TokenEncoder([Part(transformer)], "query").eval()
    compiled = openvino._compile(encoder, "openvino-float32")
    for shape in ((1, 1), (1, 7), (5, 64)):
        ids = torch.randint(3, 90, shape)
        mask = torch.ones_like(ids)
        mask[-1, shape[1] // 2 + 1 :] = 0
        with torch.inference_mode():
            expected = encoder(ids, mask)
        real = mask.bool()
        torch.testing.assert_close(compiled(ids, mask)[real], expected[real], atol=1e-4, rtol=1e-4)


class Branching(torch.nn.Module):
    task = None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        scale = 2.0 if int(input_ids.sum()) > 3 else 1.0
        return scale * attention_mask[..., None].float()


def test_an_encoder_that_cannot_be_exported() -> None:
    with pytest.raises(ModelError, match=r"OpenVINO can.t run this encoder \(.+\); choose "):
        openvino._compile(Branching(), "openvino-float32")  # type: ignore[arg-type]


def test_what_was_exported_is_kept(
    tiny_model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def encode(precision: str) -> Any:
        fresh = load_model(tiny_model_path, preset("recommended", k=4), device="cpu")
        return encode_texts(in_precision(fresh, precision), TEXTS, "document")[3].vectors

    expected = encode("openvino-float32")
    (kept,) = exported(tmp_path)
    export = openvino._export
    monkeypatch.setattr(openvino, "_export", None)
    np.testing.assert_array_equal(encode("openvino-float32"), expected)
    encode("openvino-int8")
    assert exported(tmp_path) == [kept], "for all precisions"
    assert list(kept.parent.parent.iterdir()) == [kept.parent], "and nothing else is left"

    monkeypatch.setattr(openvino, "_export", export)
    weights = kept.with_suffix(".bin").read_bytes()
    flipped = weights[:5000] + bytes([weights[5000] ^ 64]) + weights[5001:]
    for name, damaged in (
        ("encoder.xml", b"<net"),
        ("encoder.bin", weights[: len(weights) // 2]),
        ("encoder.bin", flipped),
        ("encoder.sha256", b"\xff"),
    ):
        (kept.parent / name).write_bytes(damaged)
        np.testing.assert_array_equal(encode("openvino-float32"), expected, err_msg=name)
        assert kept.with_suffix(".bin").read_bytes() == weights, "it is made anew"


def test_without_a_place_to_keep_it(
    tiny_model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    model = in_precision(load_model(tiny_model_path, device="cpu"), "openvino-float32")
    assert encode_texts(model, ["the king"], "query")[0].vectors.shape == (1, TINY_DIMENSION)


def test_other_encoders_are_kept_apart(
    tiny_model: MultiVectorEncoder, tiny_model_path: str
) -> None:
    def digest(model: Any, task: Any = "query") -> str:
        return openvino._digest(TokenEncoder(list(model)[:-1], task))

    other: Any = load_model(tiny_model_path, device="cpu")
    assert digest(tiny_model) == digest(other) == digest(other, "document")
    other[0].auto_model.config.hidden_act = "relu"
    assert digest(other) != digest(tiny_model)
    another: Any = load_model(tiny_model_path, device="cpu")
    with torch.no_grad():
        next(another.parameters())[0, 0] += 1e-3
    assert digest(another) != digest(tiny_model)
    another[0].forward_kwargs = {"task"}
    assert digest(another) != digest(another, "document")


def test_several_threads_ask_at_once(exact: MultiVectorEncoder, tiny_model_path: str) -> None:
    fresh = load_model(tiny_model_path, preset("recommended", k=4), device="cpu")
    fresh = in_precision(fresh, "openvino-float32")  # which all of them find not yet compiled
    texts = [" ".join(WORDS.split()[:length]) for length in range(2, 40)]
    alone = [encode_texts(exact, [text], "query")[0].vectors for text in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: encode_texts(fresh, [text], "query")[0], texts * 4))
    for one, expected in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(one.vectors, expected)


def test_a_model_can_be_sent_elsewhere(exact: MultiVectorEncoder) -> None:
    expected = encode_texts(exact, TEXTS, "document")
    arrived = pickle.loads(pickle.dumps(exact))
    found = encode_texts(arrived, TEXTS, "document")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)
    assert arrived.precision == "openvino-float32"


def test_an_index_keeps_to_it(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    full = Index.create(tmp_path / "full", model=tiny_model)
    rough = Index.create(tmp_path / "rough", model=tiny_model, precision="openvino-int8")
    assert full.settings.fingerprint == rough.settings.fingerprint
    for index in (full, rough):
        index.add(DOCUMENTS)
    reopened = Index.open(tmp_path / "rough", model=tiny_model)
    assert reopened.info()["precision"] == "openvino-int8"
    answers = [
        index.search("who is the king of the city?", 30, exact=True) for index in (full, reopened)
    ]
    one, other = ({hit.id: hit.score for hit in answer.hits} for answer in answers)
    assert one != other, "it makes a difference"
    assert one == pytest.approx(other, abs=0.2), "and a small one"


def test_command(run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"id": "a", "text": "the king"}\n{"id": "b", "text": "the river"}\n')
    options = ("--out", tmp_path / "index", "--model", tiny_model_path)
    assert run("index", source, *options, "--precision", "openvino-bfloat16").code == 0
    found = run("search", tmp_path / "index", "who is the king?", "--json").json
    assert {hit["id"] for hit in found["hits"]} == {"a", "b"}


def test_where_it_is_not_installed(
    tiny_model: MultiVectorEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ModelError, match=r"needs OpenVINO, .* pip install 'pseudoquery\[openvino"):
        Index.create(tmp_path / "index", model=tiny_model, precision="openvino-int8")
    assert not (tmp_path / "index").exists()
    assert available(tiny_model) == ("float32", "bfloat16")


def test_it_is_for_the_cpu(tiny_model_path: str) -> None:
    elsewhere = load_model(tiny_model_path, device="cpu").to("meta")
    assert available(elsewhere) == ("float32", "bfloat16")
    with pytest.raises(ModelError, match="is for CPUs, and this model is on meta"):
        in_precision(elsewhere, "openvino-float32")


def test_its_makers_are_told_nothing() -> None:
    code = (
        "import sys; from pseudoquery.encoding.openvino import _openvino; _openvino();"
        "from openvino.tools.ovc import convert_impl, telemetry_utils;"
        "assert 'openvino_telemetry' not in sys.modules;"
        "assert convert_impl.tm.__name__ == 'openvino.tools.ovc.telemetry_stub';"
        "assert telemetry_utils.tm.__name__ == 'openvino.tools.ovc.telemetry_stub'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
