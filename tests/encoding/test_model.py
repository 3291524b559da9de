from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling as SentencePooling
from transformers import BertTokenizer, RobertaConfig, RobertaModel
from transformers.utils import logging

from pseudoquery.encoding import model as model_module
from pseudoquery.encoding.encode import encode_texts
from pseudoquery.encoding.model import (
    choose_representation,
    fingerprint,
    load_model,
    representation_for,
    representation_of,
)
from pseudoquery.encoding.pooling import Pooling
from pseudoquery.encoding.windows import tokenizer_settings
from pseudoquery.errors import ModelError
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from tests.support.models import TEXTS, copy, save


def with_positions(plain: Path, folder: Path, positions: int, tokenizer_limit: int | None) -> Path:
    """Copy the plain model and give it another number of positions."""
    made = copy(plain, folder)
    config = json.loads((made / "config.json").read_text())
    config["max_position_embeddings"] = positions
    (made / "config.json").write_text(json.dumps(config))
    weights = load_file(made / "model.safetensors")
    name = next(name for name in weights if name.endswith("position_embeddings.weight"))
    weights[name] = torch.zeros(positions, 32)
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    settings = json.loads((made / "tokenizer_config.json").read_text())
    settings.pop("model_max_length")
    if tokenizer_limit:
        settings["model_max_length"] = tokenizer_limit
    (made / "tokenizer_config.json").write_text(json.dumps(settings))
    return made


# Loading


def test_sentence_transformers_folder(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, device="cpu")
    assert isinstance(model, MultiVectorEncoder)
    assert [type(module) for module in model] == [Transformer, Pooling]
    assert representation_of(model) == preset("recommended")
    assert model.max_seq_length == 64


def test_plain_transformers_folder(plain_model_path: Path, tiny_model_path: str) -> None:
    plain = load_model(str(plain_model_path), device="cpu")
    tiny = load_model(tiny_model_path, device="cpu")
    for ours, expected in zip(
        plain.encode_document(TEXTS), tiny.encode_document(TEXTS), strict=True
    ):
        assert torch.equal(ours, expected)


def test_given_representation(tiny_model_path: str) -> None:
    given = preset("paper", k=3)
    assert representation_of(load_model(tiny_model_path, given)) == given


def test_own_model_keeps_its_representation_and_fingerprint(
    tiny_model_path: str, tmp_path: Path
) -> None:
    representation = preset("paper", k=3, append="mean")
    model = load_model(tiny_model_path, representation, device="cpu")
    model.prompts = {"query": "query: ", "document": ""}
    model.max_seq_length = 48
    before = fingerprint(model)
    again = load_model(save(model, tmp_path / "one"), device="cpu")
    assert representation_of(again) == representation
    assert again.prompts["query"] == "query: "
    assert again.max_seq_length == 48
    assert fingerprint(again) == before
    encode_texts(again, TEXTS, "document")
    third = load_model(save(again, tmp_path / "two"), device="cpu")
    assert fingerprint(third) == before


def test_own_model_with_another_representation(tiny_model_path: str, tmp_path: Path) -> None:
    path = save(load_model(tiny_model_path, preset("paper")), tmp_path)
    other = load_model(path, preset("recommended", k=2))
    assert representation_of(other) == preset("recommended", k=2)
    assert len(other.encode_document(["the king of the city"])[0]) == 2


def test_learnt_codes_survive_other_changes(tiny_model_path: str, tmp_path: Path) -> None:
    learnt = Representation(documents="learnt", k=3)
    model = load_model(tiny_model_path, learnt)
    with torch.no_grad():
        model.get_parameter("1.codes").fill_(0.5)
    path = save(model, tmp_path)
    kept = load_model(path, Representation(documents="learnt", k=3, scale=1.0))
    assert (kept.state_dict()["1.codes"] == 0.5).all()
    fresh = load_model(path, Representation(documents="learnt", k=2))
    assert not (fresh.state_dict()["1.codes"] == 0.5).any()


def test_prompts_of_the_encoder_are_kept(tiny_model_path: str, tmp_path: Path) -> None:
    encoder = SentenceTransformer(tiny_model_path, device="cpu", prompts={"query": "query: "})
    encoder.save_pretrained(str(tmp_path), create_model_card=False)
    assert load_model(str(tmp_path)).prompts == {"query": "query: ", "document": ""}


def test_model_without_our_pooling_has_no_representation(tiny_model_path: str) -> None:
    with pytest.raises(ModelError, match=r"load_model\(\)"):
        representation_of(MultiVectorEncoder(modules=[Transformer(tiny_model_path)]))


# Sentence-level modules


def test_projection_of_sentences_becomes_one_of_tokens(
    plain_model_path: Path, tmp_path: Path
) -> None:
    dense = Dense(32, 8, activation_function=torch.nn.Identity())
    encoder = SentenceTransformer(
        modules=[
            Transformer(str(plain_model_path)),
            SentencePooling(32, pooling_mode="mean"),
            dense,
            Normalize(),
        ],
        device="cpu",
    )
    encoder.save_pretrained(str(tmp_path / "theirs"), create_model_card=False)
    mean = preset("single-vector")
    model = load_model(str(tmp_path / "theirs"), mean, device="cpu")
    assert [type(module) for module in model] == [Transformer, Dense, Pooling]
    # A linear map of the mean is the mean of the mapped tokens.
    for ours, expected in zip(
        model.encode_document(TEXTS), encoder.encode(TEXTS, convert_to_tensor=True), strict=True
    ):
        torch.testing.assert_close(ours[0], expected)
    again = load_model(save(model, tmp_path / "ours"), device="cpu")
    assert fingerprint(again) == fingerprint(model)
    assert torch.equal(again.encode_document(TEXTS)[0], model.encode_document(TEXTS)[0])
    learnt = load_model(str(tmp_path / "ours"), Representation(documents="learnt", k=3))
    assert learnt.state_dict()["2.codes"].shape == (3, 8)


# Fingerprints


def test_fingerprint_is_that_of_what_makes_the_vectors(tiny_model_path: str) -> None:
    def fresh() -> MultiVectorEncoder:
        return load_model(tiny_model_path, device="cpu")

    seen = {fingerprint(fresh())}
    assert fingerprint(fresh()) in seen
    for representation in (preset("recommended", k=8), preset("recommended", scale=7.0)):
        seen.add(fingerprint(load_model(tiny_model_path, representation)))
    assert len(seen) == 3

    nudged = fresh()
    with torch.no_grad():
        next(iter(nudged.parameters())).view(-1)[0].add_(1e-4)
    prompted = fresh()
    prompted.prompts["document"] = "passage: "
    shorter = fresh()
    shorter.max_seq_length = 32
    respelt = fresh()
    respelt.tokenizer.add_tokens(["newword"])
    for changed in (nudged, prompted, shorter, respelt):
        seen.add(fingerprint(changed))
    assert len(seen) == 7


def test_fingerprint_of_an_index_made_before_there_was_locality(tiny_model_path: str) -> None:
    def found(locality: float) -> str:
        return fingerprint(load_model(tiny_model_path, preset("recommended", locality=locality)))

    model = load_model(tiny_model_path, preset("recommended"), device="cpu")
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    settings = {
        "documents": "pseudo-queries",
        "query": "mean",
        "k": 16,
        "seeding": "equal-interval",
        "iterations": 20,
        "special_tokens": False,
        "mix_mean": 0.0,
        "append": "none",
        "normalise": True,
        "scale": 10.0,
        "score": "softmax",
    }
    digest.update(
        json.dumps([tokenizer_settings(model), settings, {}, 64], sort_keys=True).encode()
    )
    assert found(0.0) == found(0) == digest.hexdigest()
    assert len({found(locality) for locality in (0.0, 0.5, 1.0)}) == 3


@pytest.mark.parametrize("long", ["windows", "truncate"])
def test_use_does_not_change_the_fingerprint(tiny_model_path: str, long: Any) -> None:
    model = load_model(tiny_model_path, device="cpu")
    before = fingerprint(model)
    encode_texts(model, ["the king " * 100, "a river"], "document", long)
    assert fingerprint(model) == before
    model.encode_query(TEXTS)
    assert fingerprint(model) == before


def test_fingerprint_of_half_precision(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, device="cpu")
    assert fingerprint(model.bfloat16()) != fingerprint(load_model(tiny_model_path, device="cpu"))


# Window lengths


@pytest.mark.parametrize(
    ("positions", "tokenizer_limit", "expected"),
    [
        (512, 128, 512),  # the length of training sentences is raised
        (100, 64, 100),  # but only as far as there are positions
        (2048, 256, 512),  # and no further than pays
        (2048, 1024, 1024),  # a longer length of its own stays
        (100, None, 100),  # a tokenizer without a limit gets one
        (100, 4096, 100),  # and one with a wrong limit the right one
    ],
)
def test_encoder_reads_all_its_positions(
    plain_model_path: Path,
    tmp_path: Path,
    positions: int,
    tokenizer_limit: int | None,
    expected: int,
) -> None:
    folder = with_positions(plain_model_path, tmp_path, positions, tokenizer_limit)
    model = load_model(str(folder), device="cpu")
    assert model.max_seq_length == expected
    encoded = encode_texts(model, ["king " * 1100], "document", "truncate")[0]
    assert len(encoded.spans) == min(expected, 1102) - 2, "[CLS] and [SEP] stand for no text"


@pytest.mark.parametrize(("positions", "expected"), [(514, 512), (102, 100)])
def test_roberta_starts_after_the_paddings_position(
    plain_model_path: Path, tmp_path: Path, positions: int, expected: int
) -> None:
    tokenizer = BertTokenizer.from_pretrained(str(plain_model_path))
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        pad_token_id=1,
    )
    RobertaModel(config).save_pretrained(tmp_path)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), device="cpu")
    assert model.max_seq_length == expected
    encoded = encode_texts(model, ["king " * 600], "document", "truncate")[0]
    assert len(encoded.spans) == expected - 2, "[CLS] and [SEP] stand for no text"


def test_own_model_keeps_its_length(plain_model_path: Path, tmp_path: Path) -> None:
    model = load_model(str(with_positions(plain_model_path, tmp_path, 512, 64)), device="cpu")
    model.max_seq_length = 96
    path = save(model, tmp_path / "saved")
    assert load_model(path).max_seq_length == 96
    assert load_model(path, preset("paper")).max_seq_length == 96


# Silence


def test_loading_prints_nothing(tiny_model_path: str, tmp_path: Path) -> None:
    script = (
        "import sys; from pseudoquery.encoding.model import load_model; "
        "model = load_model(sys.argv[1]); model.save_pretrained(sys.argv[2]); "
        "sys.stdout.write('loading\\n'); sys.stderr.write('loading\\n'); "
        "load_model(sys.argv[1]); load_model(sys.argv[2]); load_model(sys.argv[3])"
    )
    plain = tmp_path / "plain"
    shutil.copytree(tiny_model_path, plain)
    (plain / "modules.json").unlink()
    done = subprocess.run(
        [sys.executable, "-c", script, tiny_model_path, str(tmp_path / "saved"), str(plain)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("loading\n", 1)[1] == ""
    assert done.stderr.split("loading\n", 1)[1] == ""


@pytest.mark.parametrize("bars", [True, False])
def test_progress_bars_are_as_they_were(tiny_model_path: str, tmp_path: Path, bars: bool) -> None:
    before = logging.is_progress_bar_enabled()
    switch: dict[bool, Any] = {
        True: logging.enable_progress_bar,
        False: logging.disable_progress_bar,
    }
    switch[bars]()
    try:
        load_model(tiny_model_path)
        with pytest.raises(ModelError):
            load_model(str(tmp_path))
        assert logging.is_progress_bar_enabled() == bars
        assert are_progress_bars_disabled() != bars
    finally:
        switch[before]()


def test_downloads_keep_their_progress_bars(
    monkeypatch: pytest.MonkeyPatch, tiny_model_path: str
) -> None:
    hidden = []
    load_modules = model_module._load_modules

    def watched(path: str) -> Any:
        hidden.append((logging.is_progress_bar_enabled(), are_progress_bars_disabled()))
        return load_modules(path)

    monkeypatch.setattr(model_module, "_load_modules", watched)
    load_model(tiny_model_path)
    assert hidden == [(False, are_progress_bars_disabled())]


def test_weights_in_half_precision_are_used_in_single(tiny_model_path: str, tmp_path: Path) -> None:
    model = load_model(tiny_model_path, device="cpu")
    model.half().save_pretrained(str(tmp_path / "half"))
    loaded = load_model(str(tmp_path / "half"), device="cpu")
    assert {tensor.dtype for tensor in loaded.parameters()} == {torch.float32}


def test_a_chosen_k_changes_nothing_else(tiny_model_path: str, tmp_path: Path) -> None:
    own = Representation(k=3, scale=7.0, append="mean")
    load_model(tiny_model_path, own, device="cpu").save_pretrained(str(tmp_path / "own"))
    ours = str(tmp_path / "own")
    assert choose_representation(ours, None, None) is None
    assert choose_representation(ours, None, 5) == Representation(k=5, scale=7.0, append="mean")
    assert choose_representation(ours, "paper", 5) == preset("paper", k=5)
    assert choose_representation(ours, "paper", None) == preset("paper")
    assert choose_representation(tiny_model_path, None, 5) == preset("recommended", k=5)


def test_a_models_representation_with_changes(tiny_model_path: str, tmp_path: Path) -> None:
    own = Representation(k=3, scale=7.0, append="mean")
    load_model(tiny_model_path, own, device="cpu").save_pretrained(str(tmp_path))
    assert representation_for(str(tmp_path)) == own
    assert representation_for(str(tmp_path), k=5, append="none") == Representation(k=5, scale=7.0)
    assert representation_for(tiny_model_path, scale=3.0) == preset("recommended", scale=3.0)
    assert representation_for(k=4) == replace(representation_for(), k=4)
    assert representation_for(k=4).scale != preset("recommended", k=4).scale
    with pytest.raises(ModelError, match="has no setting 'size'"):
        representation_for(size=4)
