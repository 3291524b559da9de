"""The paper's Table 4: what clustering costs beside encoding, and scoring beside one vector.

The paper measured 2.1 ms a document for K-means beside 0.9 ms for BERT, and 880 ms a query for its
scores beside 100 ms for one vector a document. Here both are measured again, on one machine and in
one run: at the paper's sizes on a GPU, or in small on a CPU, which shows that it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pseudoquery.bench.kmeans import cluster_tokens, encoder_job, hard_tokens
from pseudoquery.bench.machine import capture_job, describe_machine, synthetic_vectors, time_jobs
from pseudoquery.bench.report import format_duration
from pseudoquery.errors import QueryError
from pseudoquery.files import write_atomically
from pseudoquery.markdown import format_table
from pseudoquery.method.gpu import runs_kernels
from pseudoquery.research.provenance import describe_commit, hash_source

PAPER = {"encoder": 0.9e-3, "clustering": 2.1e-3, "one vector": 0.1, "pseudo queries": 0.88}
"""Seconds, by the paper's Table 4."""
TITLES = {
    "encoder": "encoder, a document",
    "clustering": "K-means, a document",
    "one vector": "search of one vector a document, a query",
    "pseudo queries": "search of the pseudo queries, a query",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of what is measured."""

    encoder: str = "BERT-base"
    batch: int = 256
    """Documents encoded and clustered together."""
    tokens: int = 512
    documents: int = 3_200_000
    """Documents searched: MS MARCO's."""
    k: int = 8
    dimension: int = 768
    top: int = 1000
    iterations: int = 10
    """The most iterations of K-means; an iteration labels all tokens, then moves the means."""
    repeats: int = 9


SMALL = Sizes("MiniLM-L6", batch=2, tokens=32, documents=500, dimension=32, top=10, repeats=2)


def run_table4(out: Path, small: bool = False) -> dict[str, Any]:
    """Measure, and write OUT/table4.md and .json."""
    if not small and not runs_kernels():
        raise QueryError(
            "table4 is measured on an NVIDIA GPU with Triton, and there is none here; "
            "--small runs it on a CPU, with small sizes."
        )
    sizes = SMALL if small else Sizes()
    device = "cpu" if small else "cuda"
    seconds = _time_documents(sizes, device) | _time_queries(sizes, device)
    report = {
        "command": f"pseudoquery experiment table4{' --small' if small else ''}",
        "commit": describe_commit(),
        "source": hash_source(),
        "machine": describe_machine(),
        "sizes": {name: getattr(sizes, name) for name in Sizes.__dataclass_fields__},
        "seconds": seconds,
        "paper": PAPER,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "table4.md", format_table4(report).encode())
    write_atomically(out / "table4.json", json.dumps(report, indent=1).encode())
    return report


def format_table4(report: dict[str, Any]) -> str:
    """Write the table, and what is needed to repeat it."""
    seconds, sizes = report["seconds"], report["sizes"]
    small = "--small" in report["command"]
    rows = [
        (TITLES[name], format_duration(seconds[name]), format_duration(PAPER[name]))
        for name in PAPER
    ]
    for title, part, whole in (
        ("K-means / the encoder", "clustering", "encoder"),
        ("pseudo queries / one vector", "pseudo queries", "one vector"),
    ):
        ratio, paper_ratio = seconds[part] / seconds[whole], PAPER[part] / PAPER[whole]
        rows.append((title, f"{ratio:.3g}", f"{paper_ratio:.3g}"))
    hardware = report["machine"].get("gpu", report["machine"]["processor"])
    return "\n".join(
        [
            "# Table 4: time",
            "",
            format_table(("", "here", "paper"), rows),
            "",
            f"- `{report['command']}`, commit {report['commit']} (source {report['source']}), "
            f"{hardware}, torch {report['machine']['torch']}",
            f"- {sizes['encoder']} (weights drawn at random), {sizes['batch']} documents of "
            f"{sizes['tokens']} tokens in a batch; k = {sizes['k']}, at most {sizes['iterations']} "
            f"iterations, which most need, as the tokens (of dimension {sizes['dimension']}) have "
            "no clusters"
            + ("" if small else "; K-means without the host's part, which an encoder's time hides"),
            f"- one query, {sizes['documents']:,} documents x {sizes['k']} x {sizes['dimension']}, "
            f"the {sizes['top']:,} best; exact, with Eq. 4-6; one vector is the same with k = 1",
            "- the paper's figures are of its own machine: only the ratios can be compared"
            + ("; with --small, not even these" if small else ""),
            "",
        ]
    )


def _time_documents(sizes: Sizes, device: str) -> dict[str, float]:
    """Time encoding and clustering, in seconds a document."""
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    points = hard_tokens(sizes.batch, sizes.tokens, sizes.dimension).to(device, kind)
    weights = torch.ones(points.shape[:2], dtype=torch.bool, device=device)

    def cluster() -> Any:
        return cluster_tokens(points, weights, sizes.k, sizes.iterations)

    jobs = {
        "encoder": encoder_job(sizes.encoder, sizes.batch, sizes.tokens, device),
        "clustering": cluster if device == "cpu" else capture_job(cluster),
    }
    with torch.inference_mode():
        timings = time_jobs(jobs, sizes.repeats, device)
    return {name: seconds / sizes.batch for name, seconds in timings.items()}


def _time_queries(sizes: Sizes, device: str) -> dict[str, float]:
    """Time a search among documents of one vector each, and of k vectors each."""
    prepare = _search_job_on_cpu if device == "cpu" else _search_job_on_gpu
    jobs = {"one vector": prepare(sizes, 1), "pseudo queries": prepare(sizes, sizes.k)}
    return time_jobs(jobs, sizes.repeats, device)


def _search_job_on_gpu(sizes: Sizes, k: int) -> Callable[[], Any]:
    from pseudoquery.bench.gpu_search import search_job, synthetic_corpus

    corpus = synthetic_corpus(sizes.documents, k, sizes.dimension, "float16")
    query = torch.randn(1, sizes.dimension, device="cuda") / sizes.dimension**0.5
    return search_job(corpus, query, sizes.top)


def _search_job_on_cpu(sizes: Sizes, k: int) -> Callable[[], Any]:
    import numpy as np

    from pseudoquery.method.representation import Representation
    from pseudoquery.search.int8_scan import make_scan
    from pseudoquery.search.two_step import search
    from pseudoquery.storage.segments import Segment
    from pseudoquery.storage.vector_view import make_view

    vectors = synthetic_vectors(sizes.documents, k, sizes.dimension)
    ordinals = np.arange(sizes.documents)
    segment = Segment(vectors.reshape(-1, sizes.dimension), ordinals, np.full(sizes.documents, k))
    view = make_view(1, 0, (segment,), ordinals[:0], norm=1.0)
    scan, settings = make_scan(view), Representation(k=k)
    return lambda: search(view, scan, [vectors[0, :1]], settings, sizes.top)
