"""A tiny random encoder, made by the tests: they need no network and no real weights."""

from __future__ import annotations

import shutil
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling as SentencePooling
from transformers import BertConfig, BertModel, BertTokenizer

from pseudoquery.cli import main
from pseudoquery.encoding.model import load_model
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from tests.support.collection import DOCUMENTS
from tests.support.command import Ran, Run
from tests.support.serving import Forks

settings.register_profile("pseudoquery", deadline=None)  # the machine may be busy
settings.load_profile("pseudoquery")
torch.set_num_threads(1)  # threads would slow down tensors this small

TINY_TOKENS = 64
TINY_DIMENSION = 32
WORDS = (
    "the of and to in is was for on that with as by at from it an be this are which or had not "
    "who what when where why how did does do can will there their his her they we you all one two "
    "three first last new old big small good bad red green blue black white river city town "
    "country king queen war peace music song book page water fire earth air sun moon star bird "
    "cat dog horse tree flower house door window road train ship plane year day night time people "
    "man woman child school work money food bread wine milk tea apple heart hand eye head body "
    "death love name word letter number question answer document query search find history science "
    "art law church army battle north south east west bridge castle garden winter summer spring "
)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for the tests alone: they leave the user's cache as it is."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def plain_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a transformers model and a tokenizer; no sentence-transformers file."""
    folder = tmp_path_factory.mktemp("plain-model")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [
        *special,
        *characters,
        *(f"##{character}" for character in characters),
        *WORDS.split(),
    ]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces))
    tokenizer = BertTokenizer(str(vocabulary), model_max_length=TINY_TOKENS)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=TINY_DIMENSION,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=TINY_TOKENS,
        initializer_range=0.2,  # large enough for a token's vector to depend on its neighbours
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model_path(plain_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A sentence-transformers folder: 2 layers, 32 dimensions, at most 64 tokens."""
    folder = tmp_path_factory.mktemp("tiny-model")
    encoder = Transformer(str(plain_model_path), max_seq_length=TINY_TOKENS)
    pooling = SentencePooling(TINY_DIMENSION, pooling_mode="mean")
    model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_model(tiny_model_path: str) -> MultiVectorEncoder:
    """The tiny encoder with four pseudo queries a document; shared, so not to be changed."""
    return load_model(tiny_model_path, preset("recommended", k=4), device="cpu")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main sets another; restore it

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code: Any = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, tiny_model_path: str) -> Path:
    """An index that names its model by folder, so that a command can open it; not to be changed."""
    folder = tmp_path_factory.mktemp("template") / "index"
    index = Index.create(folder, model=tiny_model_path, representation=preset("recommended", k=4))
    index.add(DOCUMENTS)
    return folder


@pytest.fixture
def served(template: Path, tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    """A copy of that index, to be served and changed."""
    return Index.open(shutil.copytree(template, tmp_path / "index"), model=tiny_model)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Starts real services, each in a process of its own."""
    started = Forks(tmp_path_factory.mktemp("forks") / "log.jsonl")
    yield started
    started.close()
