"""A test collection as the encoder sees it: every token's embedding, kept in files.

Encoding takes most of the time and is done once; every table reads the same files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.encoding.encode import document_text, pool_texts, read_texts
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.windows import Task, split

Floats = NDArray[np.float32]
AT_ONCE = 256
SEED = 20


@dataclass(frozen=True, slots=True)
class Texts:
    """Token embeddings of many texts, laid end to end, and the vectors pooled from them."""

    tokens: NDArray[Any]
    """(tokens, dim)"""
    offsets: NDArray[np.int64]
    """(texts + 1,): where each text's tokens begin"""
    ids: NDArray[np.int32]
    """(tokens,): ids in the vocabulary"""
    special: NDArray[np.bool_]
    """(tokens,): whether the tokenizer added it, as it adds [CLS]"""
    vectors: Floats
    """(vectors, dim): what the first step compares"""
    vector_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, text: int) -> slice:
        """Return where the tokens of a text are."""
        return slice(int(self.offsets[text]), int(self.offsets[text + 1]))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The text of each token."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class Questions:
    """A split's questions, sampled, with the positions of their relevant documents."""

    texts: tuple[str, ...]
    relevant: tuple[frozenset[int], ...]
    encoded: Texts


@dataclass(frozen=True)
class Collection:
    """An encoded corpus, and where its questions come from."""

    folder: Path
    cache: Path
    model: MultiVectorEncoder

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @cached_property
    def contents(self) -> tuple[str, ...]:
        """The documents' texts as the product encodes them: title first."""
        documents = load_dataset(str(self.folder), self.splits[0]).documents()
        return tuple(document_text(document)[0] for document in documents)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, the one to judge by last."""
        names = {path.stem for path in (self.folder / "qrels").glob("*.tsv")}
        return tuple(sorted(names, key=lambda name: (name != "train", name)))

    @cached_property
    def documents(self) -> Texts:
        """The corpus, encoded; from files if it was encoded before."""
        return encode(self.model, self.contents, "document", self.cache / self.name / "documents")

    @cached_property
    def training_documents(self) -> NDArray[np.int64]:
        """The positions of documents that answer questions of the split to train on."""
        dataset = load_dataset(str(self.folder), self.splits[0])
        relevant = {qrel.document_id for qrel in dataset.qrels if qrel.relevance > 0}
        ids = (document.id for document in dataset.documents())
        return np.array([row for row, id_ in enumerate(ids) if id_ in relevant])

    def questions(self, split: str, most: int) -> Questions:
        """Return at most so many questions of a split, chosen by a fixed seed."""
        dataset = load_dataset(str(self.folder), split)
        positions = {document.id: row for row, document in enumerate(dataset.documents())}
        relevant: dict[str, set[int]] = {}
        for qrel in dataset.qrels:
            if qrel.relevance > 0:
                relevant.setdefault(qrel.query_id, set()).add(positions[qrel.document_id])
        queries = [query for query in dataset.queries if query.id in relevant]
        if len(queries) > most:
            queries = random.Random(SEED).sample(queries, most)
        texts = tuple(query.text for query in queries)
        judged = tuple(frozenset(relevant[query.id]) for query in queries)
        path = self.cache / self.name / f"{split}-{most}"
        return Questions(texts, judged, encode(self.model, texts, "query", path))


def encode(model: MultiVectorEncoder, texts: Sequence[str], task: Task, folder: Path) -> Texts:
    """Encode texts into files, or read the files if they are complete."""
    if not (folder / "arrays.npz").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "tokens").open("wb") as file:
            parts = list(_encode_parts(model, texts, task, file))
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        with (folder / "unfinished").open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        (folder / "unfinished").rename(folder / "arrays.npz")
    arrays = dict(np.load(folder / "arrays.npz"))
    precision = _precision(task)
    flat = np.memmap(folder / "tokens", dtype=precision, mode="r")
    return Texts(
        flat.reshape(len(arrays["ids"]), -1),
        _offsets(arrays["lengths"]),
        arrays["ids"],
        arrays["special"],
        arrays["vectors"],
        _offsets(arrays["vectors_of_texts"]),
    )


def _encode_parts(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, file: Any
) -> Iterator[dict[str, NDArray[Any]]]:
    for start in range(0, len(texts), AT_ONCE):
        part = texts[start : start + AT_ONCE]
        reading = read_texts(model, part, task)
        if reading.points:
            raise SystemExit("a document is so long that its tokens are not kept; leave it out.")
        pooled = pool_texts(pooling_of(model), reading, task)
        tokens = [reading.tokens[text] for text in range(len(part))]
        for text in tokens:
            file.write(text.embeddings.numpy().astype(_precision(task)).tobytes())
        windows, _ = split(model, part, task, "windows")
        yield {
            "lengths": np.array([len(text.weights) for text in tokens]),
            "special": np.concatenate([text.special.numpy() for text in tokens]),
            "ids": np.concatenate(
                [np.array(window.ids, np.int32)[window.kept] for window in windows]
            ),
            "vectors": np.concatenate([text.vectors for text in pooled]),
            "vectors_of_texts": np.array([len(text.vectors) for text in pooled]),
        }


def _precision(task: Task) -> type[np.floating[Any]]:
    """Half precision for documents: half the disk, and a hundredth of a sign in a thousand."""
    return np.float16 if task == "document" else np.float32


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
