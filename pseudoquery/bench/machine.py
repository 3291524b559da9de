"""The machine that a benchmark runs on: clocks, bandwidth, arithmetic."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.native.choice import chosen_kernel

PROBE_BYTES = {"cpu": 256 << 20, "cuda": 8 << 30}
"""More than any cache holds, and on a GPU enough to keep it busy for milliseconds."""
PROBE_SIZE = {"cpu": 1024, "cuda": 8192}


def time_jobs(
    jobs: Mapping[str, Callable[[], Any]], repeats: int, device: str = "cpu"
) -> dict[str, float]:
    """Run the jobs in turn, `repeats` times after a warm-up; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if device != "cpu":
                torch.cuda.synchronize()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}


def floor(
    reading: float = 0, operations: float = 0, kind: str = "float32", on: str = "cpu"
) -> float:
    """Return the least seconds to read so many bytes, or to do so many operations."""
    seconds = [reading / bandwidth(on)]
    if operations:
        seconds.append(operations / rate(kind, on))
    return max(*seconds, 1e-12)


@cache
def bandwidth(device: str) -> float:
    """Measure how many bytes can be read a second."""
    size = PROBE_BYTES[torch.device(device).type]
    kind = torch.int64 if device == "cpu" else torch.float32
    numbers = torch.ones(size // kind.itemsize, dtype=kind, device=device)
    return size / _fastest(numbers.sum, device)


@cache
def rate(kind: str, device: str) -> float:
    """Measure how many multiplications and additions of this kind a matrix product does a second.

    Kinds are float32, float16, bfloat16 and int8.
    """
    dtype = getattr(torch, kind)
    size = PROBE_SIZE[torch.device(device).type]
    square = torch.ones(size, size, device=device).to(dtype)
    product = torch._int_mm if kind == "int8" else torch.matmul
    return 2 * size**3 / _fastest(lambda: product(square, square.T), device)


def _fastest(job: Callable[[], Any], device: str, repeats: int = 8) -> float:
    """Return the shortest time of a probe: that of the run which nothing disturbed."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def describe_machine() -> dict[str, Any]:
    """Describe this machine, as far as it matters for speed."""
    facts: dict[str, Any] = {
        "processor": _processor(),
        "kernel": chosen_kernel(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "read_gb_per_s": round(bandwidth("cpu") / 1e9, 1),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["gpu_read_gb_per_s"] = round(bandwidth("cuda") / 1e9, 1)
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    stripped = {key.strip(): value.strip() for key, value in facts.items()}
    flags = set(stripped.get("flags", "").split())
    fast = sorted(flags & {"avx2", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"})
    return f"{stripped.get('model name', platform.machine())} ({', '.join(fast)})"


def capture_job(job: Callable[[], Any]) -> Callable[[], None]:
    """Record what a job makes a GPU do; return a job that repeats it without the host's part.

    Behind an encoder, the host's part costs nothing, as it runs while the GPU is still busy.
    """
    job()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


def synthetic_vectors(documents: int, k: int, dimension: int, seed: int = 0) -> NDArray[np.float32]:
    """Draw k unit vectors for each document, near each other: (documents, k, dimension)."""
    generator = np.random.default_rng(seed)
    shared = generator.standard_normal((documents, 1, dimension), dtype=np.float32)
    vectors = generator.standard_normal((documents, k, dimension), dtype=np.float32)
    vectors += shared
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return vectors
