"""How long indexing texts takes, beside what the same encoder needs for one vector a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling as SentencePooling

from pseudoquery.bench import Check, Measured, Report, floor, timed
from pseudoquery.encoding import (
    Long,
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
PLAIN, OURS = "sentence-transformers", "pseudoquery index"
FORWARD, CLUSTERING = "encoder alone, float32", "K-means and vectors"


@dataclass(frozen=True, slots=True)
class Given:
    """What is to be encoded, and by which encoder."""

    model: MultiVectorEncoder
    texts: list[str]
    data: Mapping[str, Any]
    """Where both are from."""

    def lengths(self, long: Long) -> list[int]:
        """Count the tokens of each window that the encoder reads."""
        return [len(window.ids) for window in split(self.model, self.texts, "document", long)[0]]


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
        given = _synthetic(documents, words, k, model_name)
    else:
        given = _of_index(folder, documents)
    # One vector is made of what the encoder reads at once, and no more.
    read = {PLAIN: given.lengths("truncate"), OURS: given.lengths("windows")}
    taken = _take_turns(given, repeats)
    data = {
        "texts": len(given.texts),
        "tokens": sum(read[OURS]),
        "windows": len(read[OURS]),
        "k": pooling_of(given.model).representation.k,
        **given.data,
        "repeats": repeats,
    }
    return Report("encode", data, _rows(given.model, read, taken), _checks(read, taken))


def _synthetic(documents: int, words: int, k: int, model_name: str) -> Given:
    model = load_model(model_name, preset("recommended", k=k))
    data = {"model": model_name, "source": "synthetic"}
    return Given(model, synthetic_texts(model, documents, words), data)


def _of_index(folder: Path, documents: int) -> Given:
    index = Index.open(folder)
    texts = [document_text(one)[0] for one in islice(index.documents(), documents)]
    data = {"model": index.settings.model, "source": str(folder)}
    return Given(in_precision(index.model, "float32"), texts, data)


def _take_turns(given: Given, repeats: int) -> dict[str, float]:
    """Time all there is to compare, in seconds."""
    model, texts = given.model, given.texts
    plain = _one_vector(model)
    reading = read_texts(model, texts, "document")
    jobs: dict[str, Callable[[], Any]] = {}
    with TemporaryDirectory() as temporary:
        for precision in PRECISIONS:
            jobs[f"{PLAIN}, {precision}"] = _plain(plain, texts, precision)
            jobs[f"{OURS}, {precision}"] = _indexing(model, texts, precision, Path(temporary))
        jobs[FORWARD] = lambda: read_texts(model, texts, "document")
        jobs[CLUSTERING] = lambda: pool_texts(pooling_of(model), reading, "document")
        return timed(jobs, repeats)


def _rows(
    model: MultiVectorEncoder, read: Mapping[str, list[int]], taken: Mapping[str, float]
) -> list[Measured]:
    """Set each time beside its floor."""
    rows = []
    for name, lengths in read.items():
        for precision in PRECISIONS:
            seconds = taken[f"{name}, {precision}"]
            least = floor(0, operations(model, lengths), precision)
            note = f"{sum(lengths) / seconds:,.0f} tokens/s"
            rows.append(Measured(f"{name}, {precision}", seconds, least, note))
    numbers = sum(read[OURS]) * int(pooling_of(model).dimension or 0)
    clustering = floor(4 * numbers, 4 * numbers * pooling_of(model).representation.k)
    return [
        *rows,
        Measured(FORWARD, taken[FORWARD], floor(0, operations(model, read[OURS]))),
        Measured(CLUSTERING, taken[CLUSTERING], clustering),
    ]


def _checks(read: Mapping[str, list[int]], taken: Mapping[str, float]) -> list[Check]:
    """Compare tokens a second, as not all read the same texts whole."""
    speed = {
        (name, precision): sum(lengths) / taken[f"{name}, {precision}"]
        for name, lengths in read.items()
        for precision in PRECISIONS
    }
    beside = [
        Check(
            f"throughput of indexing / sentence-transformers, {precision}",
            speed[OURS, precision] / speed[PLAIN, precision],
            0.95,
            at_most=False,
        )
        for precision in PRECISIONS
    ]
    half = speed[OURS, "bfloat16"] / speed[OURS, "float32"]
    return [
        *beside,
        Check("K-means / the encoder", taken[CLUSTERING] / taken[FORWARD], 0.03),
        Check("throughput, bfloat16 / float32", half, 1.5, at_most=False),
    ]


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
