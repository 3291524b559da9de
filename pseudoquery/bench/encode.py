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

from pseudoquery.bench.machine import floor, time_jobs
from pseudoquery.bench.report import Check, Report, Timing
from pseudoquery.encoding.encode import document_text, encode_queries, pool_texts, read_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.precision import available, in_precision
from pseudoquery.encoding.windows import Long, split
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.records import Document

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

PLAIN, OURS = "sentence-transformers", "pseudoquery index"
QUESTION, QUESTIONS = "one question", 20
COMPARED = ("float32", "bfloat16")
"""The precisions that both can compute in; the index can in others as well."""
FORWARD, CLUSTERING = "encoder alone, float32", "K-means and vectors"


@dataclass(frozen=True, slots=True)
class EncodeInputs:
    """The texts to encode, and the encoder."""

    model: MultiVectorEncoder
    texts: list[str]
    data: Mapping[str, Any]
    """Where the texts and the encoder come from, for the report."""

    def encoders(self) -> list[tuple[str, str]]:
        """List the encoders to compare, with the precision of each."""
        ours = [(OURS, precision) for precision in available(self.model)]
        return [(PLAIN, precision) for precision in COMPARED] + ours

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
        inputs = _synthetic_inputs(documents, words, k, model_name)
    else:
        inputs = _inputs_of_index(folder, documents)
    # One vector is made of what the encoder reads at once, and no more.
    read = {PLAIN: inputs.lengths("truncate"), OURS: inputs.lengths("windows")}
    seconds_of = _time_all(inputs, repeats)
    data = {
        "texts": len(inputs.texts),
        "tokens": sum(read[OURS]),
        "windows": len(read[OURS]),
        "k": pooling_of(inputs.model).representation.k,
        **inputs.data,
        "repeats": repeats,
    }
    return Report(
        "encode", data, _rows(inputs, read, seconds_of), _checks(inputs, read, seconds_of)
    )


def _synthetic_inputs(documents: int, words: int, k: int, model_name: str) -> EncodeInputs:
    model = load_model(model_name, preset("recommended", k=k))
    data = {"model": model_name, "source": "synthetic"}
    return EncodeInputs(model, synthetic_texts(model, documents, words), data)


def _inputs_of_index(folder: Path, documents: int) -> EncodeInputs:
    index = Index.open(folder)
    texts = [document_text(document)[0] for document in islice(index.documents(), documents)]
    data = {"model": index.settings.model, "source": str(folder)}
    return EncodeInputs(in_precision(index.model, "float32"), texts, data)


def _time_all(inputs: EncodeInputs, repeats: int) -> dict[str, float]:
    """Time everything that is compared, in turn; return seconds."""
    model, texts = inputs.model, inputs.texts
    plain = _make_one_vector_encoder(model)
    reading = read_texts(model, texts, "document")
    jobs: dict[str, Callable[[], Any]] = {}
    with TemporaryDirectory() as temporary:
        for precision in COMPARED:
            jobs[f"{PLAIN}, {precision}"] = _plain_job(plain, texts, precision)
        for precision in available(model):
            jobs[f"{OURS}, {precision}"] = _indexing_job(model, texts, precision, Path(temporary))
            jobs[f"{QUESTION}, {precision}"] = _question_job(model, texts, precision)
        jobs[FORWARD] = lambda: read_texts(model, texts, "document")
        jobs[CLUSTERING] = lambda: pool_texts(pooling_of(model), reading, "document")
        seconds_of = time_jobs(jobs, repeats)
    for precision in available(model):
        seconds_of[f"{QUESTION}, {precision}"] /= QUESTIONS
    return seconds_of


def _rows(
    inputs: EncodeInputs, read: Mapping[str, list[int]], seconds_of: Mapping[str, float]
) -> list[Timing]:
    """Set each time beside its floor."""
    model, rows = inputs.model, []
    for name, precision in inputs.encoders():
        seconds = seconds_of[f"{name}, {precision}"]
        kind = precision.removeprefix("openvino-")
        least = floor(0, operations(model, read[name]), kind)
        note = f"{sum(read[name]) / seconds:,.0f} tokens/s"
        rows.append(Timing(f"{name}, {precision}", seconds, least, note))
    tokens = len(split(model, [_question(inputs.texts)], "query", "windows")[0][0].ids)
    for precision in available(model):
        least = floor(0, operations(model, [tokens]), precision.removeprefix("openvino-"))
        seconds = seconds_of[f"{QUESTION}, {precision}"]
        rows.append(Timing(f"{QUESTION}, {precision}", seconds, least, f"{tokens} tokens"))
    numbers = sum(read[OURS]) * int(pooling_of(model).dimension or 0)
    clustering = floor(4 * numbers, 4 * numbers * pooling_of(model).representation.k)
    return [
        *rows,
        Timing(FORWARD, seconds_of[FORWARD], floor(0, operations(model, read[OURS]))),
        Timing(CLUSTERING, seconds_of[CLUSTERING], clustering),
    ]


def _checks(
    inputs: EncodeInputs, read: Mapping[str, list[int]], seconds_of: Mapping[str, float]
) -> list[Check]:
    """Compare tokens a second, as not all read the same texts whole."""
    speed = {
        (name, precision): sum(read[name]) / seconds_of[f"{name}, {precision}"]
        for name, precision in inputs.encoders()
    }
    beside = [
        Check(
            f"throughput of indexing / sentence-transformers, {precision}",
            speed[OURS, precision] / speed[PLAIN, precision],
            0.95,
            at_most=False,
        )
        for precision in COMPARED
    ]
    fast = [
        Check(
            f"throughput, {precision} / float32",
            speed[OURS, precision] / speed[OURS, "float32"],
            1.5,
            at_most=False,
        )
        for precision in available(inputs.model)
        if not precision.endswith("float32")
    ]
    return [
        *beside,
        Check("K-means / the encoder", seconds_of[CLUSTERING] / seconds_of[FORWARD], 0.03),
        *fast,
    ]


def synthetic_texts(model: MultiVectorEncoder, count: int, words: int) -> list[str]:
    """Make texts from the tokenizer's vocabulary, of half to one and a half times so many words."""
    generator = np.random.default_rng(0)
    vocabulary = sorted(
        token for token in model.tokenizer.get_vocab() if token.isalpha() and token.islower()
    )
    lengths = generator.integers(max(words // 2, 1), words * 3 // 2 + 1, count)
    return [" ".join(generator.choice(vocabulary, length)) for length in lengths]


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


def _make_one_vector_encoder(model: MultiVectorEncoder) -> SentenceTransformer:
    """Make the usual one-vector encoder of the same modules."""
    pooling = SentencePooling(int(pooling_of(model).dimension or 0), pooling_mode="mean")
    plain = SentenceTransformer(modules=[*list(model)[:-1], pooling], device=str(model.device))
    plain.max_seq_length = model.max_seq_length
    return plain


def _plain_job(plain: SentenceTransformer, texts: list[str], precision: str) -> Callable[[], Any]:
    def encode() -> Any:
        half = torch.autocast(plain.device.type, torch.bfloat16)
        with half if precision == "bfloat16" else nullcontext():
            return plain.encode(texts, show_progress_bar=False)

    return encode


def _indexing_job(
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


def _question(texts: Sequence[str]) -> str:
    """Make a question of a text's first words."""
    return " ".join(texts[0].split()[:10])


def _question_job(
    model: MultiVectorEncoder, texts: Sequence[str], precision: str
) -> Callable[[], Any]:
    """Encode questions one by one, as a search does."""
    encoder = in_precision(model, precision)

    def encode() -> None:
        for _ in range(QUESTIONS):
            encode_queries(encoder, [_question(texts)])

    return encode
