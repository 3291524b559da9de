"""sentence-transformers' own search: one vector by `semantic_search`, all tokens by `maxsim`.

It has no index for several vectors: every document is compared. Documents are in order of length,
so that little is padded, and in single precision, which a processor is fastest in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import util

from benchmarks.peers.measure import Inputs, Vectors, Way, run


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:  # noqa: ARG001
    names = inputs.facts["representations"]
    if "one" in names:
        yield one_vector(inputs.vectors("one"))
    if "tokens" in names:
        yield all_tokens(inputs.vectors("tokens"))


def one_vector(vectors: Vectors) -> Way:
    start = time.perf_counter()
    corpus = torch.from_numpy(np.array(vectors.documents, np.float32))
    seconds = time.perf_counter() - start

    def search(query: int, top: int) -> Sequence[int]:
        query_vectors = torch.from_numpy(vectors.query(query))
        hits = util.semantic_search(query_vectors, corpus, top_k=top, score_function=util.dot_score)
        return [int(hit["corpus_id"]) for hit in hits[0]]

    return Way("semantic_search", "one", search, seconds, corpus.nbytes)


def all_tokens(vectors: Vectors) -> Way:
    start = time.perf_counter()
    order = np.argsort(np.diff(vectors.offsets), kind="stable")
    corpus = [
        torch.from_numpy(np.array(vectors.document(position), np.float32)) for position in order
    ]
    seconds = time.perf_counter() - start

    def search(query: int, top: int) -> Sequence[int]:
        scores = util.maxsim([torch.from_numpy(vectors.query(query))], corpus)[0]
        best = scores.topk(min(top, len(corpus))).indices
        positions: list[int] = order[best.numpy()].tolist()
        return positions

    types = {"on disk": str(vectors.documents.dtype), "compared in": "float32"}
    size = vectors.documents.nbytes
    return Way("exact MaxSim", "tokens", search, seconds, size, settings=types)


if __name__ == "__main__":
    run("sentence_transformers", ["sentence-transformers", "torch"], ways)
