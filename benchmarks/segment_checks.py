"""Measure what it costs to compare segments with their checksums before they are searched.

    OMP_NUM_THREADS=1 python benchmarks/segment_checks.py

An index of random vectors and tokens is made. Then, in turns with and without the comparison: the
first search of an index just opened (its codes in 8 bits are on disk, its files in the page cache),
and searches per second over some rounds, in each of which a writer adds documents.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from pseudoquery.bench.machine import describe_machine
from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import bytes_per_token
from pseudoquery.records import Document
from pseudoquery.search.request import check_request
from pseudoquery.search.searcher import FolderSearcher
from pseudoquery.storage import derived_files
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.segment_blocks import SegmentBlocks
from pseudoquery.storage.segment_checks import SegmentChecks
from pseudoquery.storage.store import FolderStore

DIMENSION, VECTORS, TOKENS = 384, 8, 120
AT_ONCE = 2048
REPRESENTATION = Representation(k=VECTORS, scale=10.0)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=20_000)
    arguments.add_argument("--repeats", type=int, default=7)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--searches", type=int, default=100, help="searches per round")
    arguments.add_argument("--added", type=int, default=64, help="documents added per round")
    options = arguments.parse_args()
    print(json.dumps(describe_machine()))
    with TemporaryDirectory() as temporary:
        store = make_index(Path(temporary) / "index", options.documents)
        search(FolderSearcher(store))  # makes the codes
        size = sum(path.stat().st_size for path in (store.folder / "segments").iterdir())
        print(json.dumps({"segments": store.facts()["segments"], "segment_bytes": size}))
        report("first search, seconds", in_turns(lambda: first_search(store), options.repeats))
        rates = in_turns(
            lambda: rate(store, options.rounds, options.searches, options.added), options.repeats
        )
        report("searches per second beside a writer", rates)
        rates = in_turns(lambda: rate(store, 1, options.searches, 0), options.repeats)
        report("searches per second", rates)


def make_index(folder: Path, documents: int) -> FolderStore:
    settings = Settings("", "", DIMENSION, {"k": VECTORS}, tokens="signs")
    store = FolderStore.create(folder, settings)
    for start in range(0, documents, AT_ONCE):
        add(store, start, min(AT_ONCE, documents - start))
    return store


def add(store: FolderStore, start: int, count: int) -> None:
    generator = np.random.default_rng(start)
    owners = np.arange(TOKENS) % VECTORS
    spans = np.stack([np.arange(TOKENS) * 4, np.arange(TOKENS) * 4 + 3], axis=1)
    vectors = generator.standard_normal((count, VECTORS, DIMENSION), dtype=np.float32)
    width = TOKENS * bytes_per_token("signs", DIMENSION)
    codes = generator.integers(0, 256, (count, width), dtype=np.uint8)
    encoded = [
        DocumentVectors(each / DIMENSION**0.5, owners, spans, code)
        for each, code in zip(vectors, codes, strict=True)
    ]
    with store.writer() as writer:
        writer.add([Document(f"{start + n}", "text") for n in range(count)], encoded)


def search(searcher: FolderSearcher, seed: int = 0) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((1, DIMENSION), dtype=np.float32)
    tokens = generator.standard_normal((12, DIMENSION), dtype=np.float32)
    question = QuestionVectors(vectors / np.linalg.norm(vectors), tokens)
    request = check_request(["question"], 10, None, False, "dense", None)
    with searcher.rank(request, [question], REPRESENTATION) as (documents, rankings):
        assert rankings[0].candidates_proven or rankings[0].certified
        for ordinal in rankings[0].ordinals:
            documents.by_ordinal(ordinal)


def first_search(store: FolderStore) -> float:
    begin = time.perf_counter()
    search(FolderSearcher(FolderStore.open(store.folder)))
    return time.perf_counter() - begin


def rate(store: FolderStore, rounds: int, searches: int, added: int) -> float:
    reader = FolderSearcher(FolderStore.open(store.folder))
    search(reader)
    taken = 0.0
    for number in range(rounds):
        if added:
            add(store, time.time_ns(), added)
        begin = time.perf_counter()
        for seed in range(searches):
            search(reader, seed + number)
        taken += time.perf_counter() - begin
    return rounds * searches / taken


def in_turns(job: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Measure with the comparison and without it, by turns: medians."""
    compared, not_compared = [], []
    for _ in range(repeats):
        compared.append(job())
        with (
            patch.object(SegmentChecks, "check", lambda *_: None),
            patch.object(SegmentBlocks, "check_ranges", lambda *_: None),
            patch.object(derived_files, "_is_sound", lambda *_: True),
        ):
            not_compared.append(job())
    return median(compared), median(not_compared)


def report(name: str, values: tuple[float, float]) -> None:
    checked, unchecked = values
    row = {
        "figure": name,
        "compared": round(checked, 4),
        "not_compared": round(unchecked, 4),
        "ratio": round(checked / unchecked, 3),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
