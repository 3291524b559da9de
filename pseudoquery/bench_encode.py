"""How long indexing texts takes, beside what the same encoder needs for one vector a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling as SentencePooling

from pseudoquery.bench import Check, Measured, Report, floor, timed
from pseudoquery.encoding import (
    document_text,
    in_precision,
    pool_texts,
    pooling_of,
    read_texts,
    split,
)
from pseudoquery.index import Index
from pseudoquery.model import load_model
from pseudoquery.records import Document
from pseudoquery.representation import preset

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

PRECISIONS = ("float32", "bfloat16")


def bench_encode(
    documents: int = 64,
    words: int = 300,
    k: int = 8,
    model_name: str = "default",
    folder: Path | None = None,
    repeats: int = 3,
) -> Report:
    """Index texts whole, and encode them with sentence-transformers; of an index, or synthetic.

    The floor is the arithmetic of the encoder at the measured rate of the same precision.
    """
    if folder is None:
        model = load_model(model_name, preset("recommended", k=k))
        texts = synthetic_texts(model, documents, words)
    else:
        index = Index.open(folder)
        model = in_precision(index.model, "float32")
        found = index.documents()
        texts = [document_text(one)[0] for one, _ in zip(found, range(documents), strict=False)]
    lengths = [len(window.ids) for window in split(model, texts, "document", "windows")[0]]
    # One vector is made of what the encoder reads at once, and no more.
    cut = [len(window.ids) for window in split(model, texts, "document", "truncate")[0]]
    plain = _one_vector(model)
    jobs: dict[str, Callable[[], Any]] = {}
    with TemporaryDirectory() as temporary:
        for precision in PRECISIONS:
            jobs[f"sentence-transformers, {precision}"] = _plain(plain, texts, precision)
            jobs[f"pseudoquery index, {precision}"] = _indexing(
                model, texts, precision, Path(temporary)
            )
        jobs["forward"] = lambda: read_texts(model, texts, "document")
        reading = read_texts(model, texts, "document")
        jobs["pooling"] = lambda: pool_texts(pooling_of(model), reading, "document")
        taken = timed(jobs, repeats)
    work = operations(model, lengths)
    settings = pooling_of(model).representation
    dimension = int(pooling_of(model).dimension or 0)
    rows = []
    throughput = {}
    for name, read in (("sentence-transformers", cut), ("pseudoquery index", lengths)):
        for precision in PRECISIONS:
            seconds = taken[f"{name}, {precision}"]
            throughput[name, precision] = sum(read) / seconds
            least = floor(0, operations(model, read), precision)
            note = f"{sum(read) / seconds:,.0f} tokens/s"
            rows.append(Measured(f"{name}, {precision}", seconds, least, note))
    rows += [
        Measured("encoder alone, float32", taken["forward"], floor(0, work)),
        Measured(
            "K-means and vectors",
            taken["pooling"],
            floor(4 * sum(lengths) * dimension, 4 * sum(lengths) * dimension * settings.k),
        ),
    ]
    checks = [
        Check(
            f"throughput of indexing / sentence-transformers, {precision}",
            throughput["pseudoquery index", precision]
            / throughput["sentence-transformers", precision],
            0.95,
            at_most=False,
        )
        for precision in PRECISIONS
    ]
    full, half = (throughput["pseudoquery index", precision] for precision in PRECISIONS)
    checks.append(Check("K-means / the encoder", taken["pooling"] / taken["forward"], 0.03))
    checks.append(Check("throughput, bfloat16 / float32", half / full, 1.5, at_most=False))
    data = {
        "texts": len(texts),
        "tokens": sum(lengths),
        "windows": len(lengths),
        "k": settings.k,
        "model": model_name if folder is None else index.settings.model,
        "source": "synthetic" if folder is None else str(folder),
        "repeats": repeats,
    }
    return Report("encode", data, rows, checks)


def synthetic_texts(model: MultiVectorEncoder, count: int, words: int) -> list[str]:
    """Make texts of half to one and a half times so many of the tokenizer's own words."""
    generator = np.random.default_rng(0)
    known = sorted(one for one in model.tokenizer.get_vocab() if one.isalpha() and one.islower())
    lengths = generator.integers(max(words // 2, 1), words * 3 // 2 + 1, count)
    return [" ".join(generator.choice(known, length)) for length in lengths]


def operations(model: MultiVectorEncoder, lengths: Sequence[int]) -> float:
    """Count the additions and multiplications that the encoder needs for windows so long."""
    encoder: Any = model[0].auto_model
    weights: int = sum(
        module.weight.numel()
        for name, module in encoder.named_modules()
        if isinstance(module, torch.nn.Linear) and "pooler" not in name
    )
    settings = encoder.config
    attention = 4 * settings.num_hidden_layers * settings.hidden_size
    return float(sum(2 * weights * length + attention * length**2 for length in lengths))


def _one_vector(model: MultiVectorEncoder) -> SentenceTransformer:
    """Make the usual one-vector encoder of the same modules."""
    pooling = SentencePooling(int(pooling_of(model).dimension or 0), pooling_mode="mean")
    plain = SentenceTransformer(modules=[*list(model)[:-1], pooling], device=str(model.device))
    plain.max_seq_length = model.max_seq_length
    return plain


def _plain(plain: SentenceTransformer, texts: list[str], precision: str) -> Callable[[], Any]:
    def encode() -> Any:
        half = torch.autocast(plain.device.type, torch.bfloat16)
        with half if precision == "bfloat16" else nullcontext():
            return plain.encode(texts, show_progress_bar=False)

    return encode


def _indexing(
    model: MultiVectorEncoder, texts: Sequence[str], precision: Any, temporary: Path
) -> Callable[[], Any]:
    """Index the texts as the command does, every time with new ids, so that none is known."""
    index = Index.create(
        temporary / precision, model=in_precision(model, precision), precision=precision
    )
    times = iter(range(1_000_000))

    def add() -> None:
        turn = next(times)
        documents = (Document(f"{turn}-{number}", text) for number, text in enumerate(texts))
        index.add(documents)

    return add
