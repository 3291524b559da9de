"""Measure how long it takes to rank candidates by the signs of their tokens, by each kernel.

    OMP_NUM_THREADS=1 python benchmarks/sign_codes.py

Beside it, in turns: the same by float16 tokens in numpy, and the encoding of the question with the
bundled model. Processor time of one thread is counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from pseudoquery.bench.machine import describe_machine
from pseudoquery.encoding.encode import encode_queries
from pseudoquery.encoding.model import load_model
from pseudoquery.native.choice import available_kernels
from pseudoquery.native.signs import LARGEST_VALUE, max_dots_by, pack_signs

QUESTION = "how many people lived in the old town before the great fire"
"""12 tokens."""
ENCODING, FLOAT16 = "encoding the question", "float16 tokens, numpy"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=100)
    arguments.add_argument("--tokens", type=int, default=600)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--question-tokens", type=int, default=12)
    arguments.add_argument("--repeats", type=int, default=21)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    jobs = make_jobs(options.documents, options.tokens, options.dimension, options.question_tokens)
    seconds = time_in_turns(jobs, options.repeats)
    print(json.dumps(describe_machine()))
    for name, taken in seconds.items():
        row = {
            "job": name,
            "microseconds": round(1e6 * taken),
            "of_encoding": round(taken / seconds[ENCODING], 3),
            "times_as_fast_as_float16": round(seconds[FLOAT16] / taken, 1),
        }
        print(json.dumps(row))


def make_jobs(
    documents: int, tokens: int, dimension: int, question_tokens: int
) -> dict[str, Callable[[], Any]]:
    """Prepare what is compared."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((documents, tokens, dimension), dtype=np.float32)
    codes = np.concatenate([pack_signs(document) for document in vectors])
    counts = np.full(documents, tokens)
    starts = np.arange(documents) * (len(codes) // documents)
    shape = (question_tokens, dimension)
    question = generator.integers(-LARGEST_VALUE, LARGEST_VALUE + 1, shape).astype(np.int8)
    float_question = question.astype(np.float32).T.copy()
    halves = vectors.astype(np.float16)
    model = load_model(device="cpu")

    def score_floats() -> Any:
        return [(half.astype(np.float32) @ float_question).max(axis=0) for half in halves]

    jobs: dict[str, Callable[[], Any]] = {
        ENCODING: lambda: encode_queries(model, [QUESTION]),
        FLOAT16: score_floats,
    }
    for kernel in available_kernels():
        jobs[f"signs, {kernel}"] = lambda name=kernel: max_dots_by(
            name, question, codes, starts, counts
        )
    return jobs


def time_in_turns(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Run the jobs in turn, once to warm up; return the median processor time of each."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats + 1):
        for name, job in jobs.items():
            start = time.thread_time()
            job()
            times[name].append(time.thread_time() - start)
    return {name: median(taken[1:]) for name, taken in times.items()}


if __name__ == "__main__":
    main()
