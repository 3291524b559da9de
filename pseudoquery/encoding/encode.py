"""Texts in, vectors out, with nothing lost: long texts are read through overlapping windows.

The tokens of all windows of a text are pooled together, so a document has its k vectors however
long it is. A token in two windows is taken from the one in which it stands further from the edge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.embed import FEW_TOKENS, batches_by_length, embed
from pseudoquery.encoding.pooling import Pooling, Tokens, pooling_of
from pseudoquery.encoding.precision import precision_of
from pseudoquery.encoding.threads import in_threads
from pseudoquery.encoding.windows import Long, Task, Window, split, window_length
from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.kmeans import kmeans
from pseudoquery.method.token_codes import TokenType, join_codes, pack_tokens
from pseudoquery.records import Document

FOLD_ABOVE = 32_768
"""A text of more tokens is folded: blocks of it are clustered to a few weighted means first, so
that a book takes no more memory than a chapter."""
FOLD_BLOCK, FOLD_TO = 8192, 256


@dataclass(frozen=True, slots=True)
class Reading:
    """Texts that went through the encoder, and can be pooled in any way."""

    tokens: Mapping[int, Tokens]
    """Each text's tokens or, if it is huge, weighted means of them."""
    points: Mapping[int, NDArray[np.int64]]
    """For a huge text, which of those means each token went into."""
    spans: Mapping[int, NDArray[np.int64]]
    regular: Mapping[int, NDArray[np.bool_]]
    """Which tokens of each text stand for text; the others are such as [CLS]."""
    cut: frozenset[int]
    codes: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)
    """The codes of each text's tokens, if they were asked for."""
    digits: torch.dtype | None = None
    """What the encoder computed in, if that is less than single precision."""


def encode_texts(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, long: Long = "windows"
) -> list[DocumentVectors]:
    """Encode texts as queries or documents.

    The texts beside a text change its vectors by no more than rounding: a matrix product adds in an
    order that depends on its shape.
    """
    return pool_texts(pooling_of(model), read_texts(model, texts, task, long), task)


def read_texts(
    model: MultiVectorEncoder,
    texts: Sequence[str],
    task: Task,
    long: Long = "windows",
    token_type: TokenType = "none",
) -> Reading:
    """Run texts through the encoder; pooling, which is cheap, comes after."""
    windows, cut = split(model, texts, task, long)
    by_text: dict[int, list[Window]] = defaultdict(list)
    for window in windows:
        by_text[window.text].append(window)
    huge = {text for text in by_text if _must_fold(model, by_text[text], task)}
    short = {text: by_text[text] for text in by_text if text not in huge}
    tokens = _embed_texts(model, short, task)
    codes = {text: _pack(token_type, tokens[text]) for text in tokens}
    points: dict[int, NDArray[np.int64]] = {}
    for text in huge:
        tokens[text], points[text], codes[text] = _fold(model, by_text[text], task, token_type)
    return Reading(
        tokens,
        points,
        {text: _spans(text_windows) for text, text_windows in by_text.items()},
        {text: ~_special(text_windows) for text, text_windows in by_text.items()},
        frozenset(cut),
        codes,
        torch.bfloat16 if precision_of(model) == "bfloat16" else None,
    )


def pool_texts(pooling: Pooling, reading: Reading, task: Task) -> list[DocumentVectors]:
    """Make the vectors of texts that were read."""
    pooled = _pool(pooling, reading.tokens, task, reading.digits)
    encoded = []
    for text in range(len(reading.tokens)):
        vectors, owners = pooled[text]
        owners = owners[reading.points[text]] if text in reading.points else owners
        regular = reading.regular[text]
        encoded.append(
            DocumentVectors(
                vectors,
                owners[regular],
                reading.spans[text][regular],
                reading.codes[text],
                text in reading.cut,
            )
        )
    return encoded


def document_text(document: Document) -> tuple[str, int]:
    """Return the text to encode for a document, and where in it the document's text begins."""
    if not document.title.strip():
        return document.text, 0
    return f"{document.title}\n{document.text}", len(document.title) + 1


def encode_documents(
    model: MultiVectorEncoder,
    documents: Sequence[Document],
    long: Long,
    token_type: TokenType = "none",
) -> list[DocumentVectors]:
    """Encode documents, with codes of their tokens of this type."""
    texts = [document_text(document)[0] for document in documents]
    reading = read_texts(model, texts, "document", long, token_type)
    return pool_texts(pooling_of(model), reading, "document")


def encode_questions(model: MultiVectorEncoder, texts: Sequence[str]) -> list[QuestionVectors]:
    """Encode questions, and each of their tokens."""
    reading = read_texts(model, texts, "query")
    encoded = pool_texts(pooling_of(model), reading, "query")
    return [
        QuestionVectors(question.vectors, _unit_tokens(reading.tokens[text]), question.spans)
        for text, question in enumerate(encoded)
    ]


def encode_queries(model: MultiVectorEncoder, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """Encode questions to arrays (query vectors, dim)."""
    return [encoded.vectors for encoded in encode_texts(model, texts, "query")]


def _unit_tokens(tokens: Tokens) -> NDArray[np.float32]:
    """Return the tokens that stand for text, each of length 1."""
    regular = tokens.embeddings[~tokens.special].float()
    unit: NDArray[np.float32] = torch.nn.functional.normalize(regular, dim=-1).cpu().numpy()
    return unit


def _pack(token_type: TokenType, tokens: Tokens) -> NDArray[np.uint8]:
    """Write the codes of the tokens that stand for text."""
    if token_type == "none":
        return np.zeros(0, dtype=np.uint8)
    return pack_tokens(token_type, tokens.embeddings[~tokens.special].float().cpu().numpy())


def _embed_texts(
    model: MultiVectorEncoder, by_text: dict[int, list[Window]], task: Task
) -> dict[int, Tokens]:
    """Embed the windows of many texts together, then put each text together again."""
    every = [window for windows in by_text.values() for window in windows]
    embedded = iter(embed(model, every, task))
    texts = {}
    for text, windows in by_text.items():
        embeddings = torch.cat([next(embedded) for _ in windows])
        ones = torch.ones(len(embeddings), device=embeddings.device)
        special = torch.from_numpy(_special(windows)).to(embeddings.device)
        texts[text] = Tokens(embeddings, ones, special)
    return texts


def _must_fold(model: MultiVectorEncoder, windows: Sequence[Window], task: Task) -> bool:
    """Say whether a text is too long to hold; means can be computed from means, tokens can't."""
    settings = pooling_of(model).representation
    kind = settings.query if task == "query" else settings.documents
    return (
        kind in ("pseudo-queries", "mean")
        and sum(int(window.kept.sum()) for window in windows) > FOLD_ABOVE
    )


def _fold(
    model: MultiVectorEncoder, windows: Sequence[Window], task: Task, token_type: TokenType
) -> tuple[Tokens, NDArray[np.int64], NDArray[np.uint8]]:
    """Stream a huge text through the encoder, keeping a few weighted means of each block.

    Also returns which of the means each token went into, and the tokens' codes. Special tokens stay
    as they are, and come first, so that the first of all is still [CLS].
    """
    blocks: list[Tokens] = []
    points: list[Tensor] = []
    codes: list[NDArray[np.uint8]] = []
    total, locality = 0, pooling_of(model).representation.locality
    per_block = max(1, FOLD_BLOCK // window_length(model))
    for start in range(0, len(windows), per_block):
        block = _embed_texts(model, {0: list(windows[start : start + per_block])}, task)[0]
        codes.append(_pack(token_type, block))
        regular = (~block.special).float()
        clusters = kmeans(
            block.embeddings[None], regular[None], FOLD_TO, iterations=3, locality=locality
        )
        alive = clusters.counts[0] > 0
        special = int(block.special.sum())
        point = special + (alive.cumsum(0) - 1)[clusters.assignments[0]]
        point[block.special] = torch.arange(special, device=point.device)
        means = clusters.centroids[0][alive]
        blocks.append(
            Tokens(
                torch.cat([block.embeddings[block.special], means]),
                torch.cat([block.weights[block.special], clusters.counts[0][alive]]),
                torch.arange(special + len(means), device=point.device) < special,
            )
        )
        points.append(total + point)
        total += len(means) + special
    embeddings, weights, specials = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    folded = Tokens(embeddings, weights, specials)
    joined = join_codes(token_type, codes, embeddings.shape[1])
    return folded, torch.cat(points).cpu().numpy(), joined


def _pool(
    pooling: Pooling, tokens: Mapping[int, Tokens], task: Task, digits: torch.dtype | None
) -> dict[int, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Pool texts of like length together: vectors (vectors, dim) and token owners (tokens,)."""
    lengths = {text: len(tokens[text].weights) for text in tokens}
    order = sorted(tokens, key=lambda text: -lengths[text])
    device = tokens[order[0]].weights.device if order else torch.device("cpu")
    batches = list(batches_by_length(order, lengths, device))

    def pool(batch: list[int]) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        return _pool_batch(pooling, [tokens[text] for text in batch], task, digits)

    alone = device.type != "cpu" or sum(lengths.values()) <= FEW_TOKENS
    pooled = map(pool, batches) if alone else in_threads(pool, batches)
    return {
        text: vectors
        for batch, done in zip(batches, pooled, strict=True)
        for text, vectors in zip(batch, done, strict=True)
    }


def _pool_batch(
    pooling: Pooling, tokens: Sequence[Tokens], task: Task, digits: torch.dtype | None
) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Pool texts together, padded to one length."""
    results = []
    with torch.inference_mode():
        padded = [
            torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
            for parts in zip(*tokens, strict=True)
        ]
        pooled = pooling.vectors(Tokens(*padded), task, digits)
        positions = pooled.mask.cumsum(dim=1) - 1
        for row, text in enumerate(tokens):
            vectors = pooled.values[row][pooled.mask[row]].float().cpu().numpy()
            owners = pooled.owners[row, : len(text.weights)]
            owned = (owners >= 0) & pooled.mask[row][owners.clamp(min=0)]
            owners = torch.where(owned, positions[row][owners.clamp(min=0)], -1)
            results.append((vectors, owners.cpu().numpy()))
    return results


def _special(windows: Iterable[Window]) -> NDArray[np.bool_]:
    return np.concatenate([window.special[window.kept] for window in windows])


def _spans(windows: Sequence[Window]) -> NDArray[np.int64]:
    return np.concatenate([window.spans[window.kept] for window in windows])
