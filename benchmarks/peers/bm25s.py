"""bm25s: words alone, stemmed and without stop words, as its introduction recommends.

There is no vector to be given, so the time includes the splitting of the question into words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import bm25s
import Stemmer

from benchmarks.peers.measure import Inputs, Way, run, size_of


def ways(inputs: Inputs, folder: Path) -> Iterator[Way]:
    documents, questions = inputs.texts("documents"), inputs.texts("queries")
    for backend in ("numpy", "numba"):
        start = time.perf_counter()
        model = bm25s.BM25(backend=backend)
        model.index(words(documents), show_progress=False)
        seconds = time.perf_counter() - start
        model.save(folder / backend)
        search = searching(model, questions, len(documents))
        size = size_of(folder / backend)
        settings = {"method": model.method, "k1": model.k1, "b": model.b}
        yield Way(f"BM25, {backend}", "words", search, seconds, size, score="", settings=settings)


def words(texts: list[str]) -> Any:
    stemmer = Stemmer.Stemmer("english")
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def searching(model: Any, questions: list[str], count: int) -> Callable[[int, int], Sequence[int]]:
    def search(query: int, top: int) -> Sequence[int]:
        tokens = words([questions[query]])
        positions, _ = model.retrieve(tokens, k=min(top, count), show_progress=False)
        ranking: Sequence[int] = positions[0].tolist()
        return ranking

    return search


if __name__ == "__main__":
    run("bm25s", ["bm25s"], ways)
