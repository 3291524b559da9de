"""Measure this library beside its peers: one run, on one machine, on the same vectors.

    python -m benchmarks.peers FOLDER:SPLIT --out results/peers [--documents N] [--queries N]

Each peer runs by itself, in an environment of its own, which is made when it is first needed. The
texts are read once, by one encoder, for all. What comes out is report.md, with its two plots, and
report.json. Nothing else should be at work on the machine meanwhile: the report says, by a sum that
every peer also times, how even the run was.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import PEERS, ROOT, python_of
from benchmarks.peers.figures import figures
from benchmarks.peers.inputs import check_inputs, choose, prepare, prepare_synthetic
from benchmarks.peers.measure import Inputs
from benchmarks.peers.report import write_report
from pseudoquery.bench.machine import describe_machine
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import PseudoqueryError

WITHOUT_TEXTS = ("faiss", "lancedb", "qdrant_edge", "pseudoquery")
"""Those that can be asked about vectors alone."""
RANDOM_QUERIES = 200
SLOW = "pylate"
BESIDE_SLOW = ("faiss", "sentence_transformers", "bm25s", "pylate", "pseudoquery")
"""One that takes hours for thousands of documents, and those it is compared with on fewer."""


def main() -> None:
    options = _options()
    try:
        report = measure(options)
    except PseudoqueryError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    write_report(report, options.out)
    print(f"wrote {options.out / 'report.md'}")
    sys.exit(1 if any(section["failed"] for section in report["sections"].values()) else 0)


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    arguments.add_argument("dataset", help="a test collection, FOLDER:SPLIT")
    arguments.add_argument("--out", type=Path, required=True, help="where the report goes")
    arguments.add_argument(
        "--work",
        type=Path,
        default=ROOT / "scratch" / "peers",
        help="where the environments and, under run/, the vectors are kept",
    )
    arguments.add_argument("--model", default="minilm", help="the encoder of all peers")
    arguments.add_argument("--trained", help="a model trained for pseudo queries, to add")
    arguments.add_argument("--documents", type=int, help="draw so many; by default, all")
    arguments.add_argument("--queries", type=int, default=1000, help="draw so many")
    arguments.add_argument(
        "--token-queries", type=int, default=100, help="of these, for late interaction"
    )
    arguments.add_argument(
        "--few", type=int, default=1000, help="documents that PyLate is asked about; 0: all"
    )
    arguments.add_argument("--synthetic", type=_sizes, default=(20_000, 8, 384), help="NxKxDIM")
    arguments.add_argument(
        "--again",
        action="store_true",
        help="ask about the vectors that a run left under --work: reading texts takes longest",
    )
    arguments.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    return arguments.parse_args()


def _sizes(text: str) -> tuple[int, int, int]:
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} should be like 20000x8x384")
    documents, k, dimension = map(int, parts)
    return documents, k, dimension


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Prepare inputs of three kinds, put them to the peers, and judge what comes back."""
    name, _, split = options.dataset.rpartition(":")
    dataset = load_dataset(name, split)
    work = options.work.resolve()  # peers run in another folder
    if not options.again:
        shutil.rmtree(work / "run", ignore_errors=True)
    pythons, failed = installed(options.peers, work / "environments")
    most = [peer for peer in pythons if peer != SLOW or not options.few]
    sizes = {"all": (options.documents, most)}
    if options.few and SLOW in pythons:
        sizes["few"] = (options.few, [peer for peer in pythons if peer in BESIDE_SLOW])
    models = [options.model, *([options.trained] if options.trained else [])]
    sections = {}
    for size, (documents, peers) in sizes.items():
        folder = work / "run" / size
        drawn = choose(dataset, documents, options.queries)
        if options.again:
            check_inputs(drawn, folder / "inputs", models, options.token_queries)
        else:
            print("reading texts", flush=True)
            prepare(drawn, folder / "inputs", models, options.token_queries, _commit())
        sections[size] = section(folder, peers, pythons)
    sections["all"]["failed"] |= failed
    folder = work / "run" / "random"
    shutil.rmtree(folder, ignore_errors=True)
    documents, k, dimension = options.synthetic
    prepare_synthetic(folder / "inputs", documents, k, dimension, RANDOM_QUERIES)
    peers = [peer for peer in pythons if peer in WITHOUT_TEXTS]
    sections["random"] = section(folder, peers, pythons)
    return {
        "command": shlex.join(["python", "-m", "benchmarks.peers", *_told(options)]),
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "sections": sections,
    }


def installed(peers: Sequence[str], folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Make the environments; returns interpreters, and why some peers have none."""
    pythons, failed = {}, {}
    for peer in peers:
        try:
            pythons[peer] = python_of(peer, folder)
        except subprocess.CalledProcessError as error:
            failed[peer] = f"it can't be installed ({_last_line(error.stderr)})"
            print(f"  {peer}: {failed[peer]}", flush=True)
    return pythons, failed


def section(folder: Path, peers: Sequence[str], pythons: dict[str, Path]) -> dict[str, Any]:
    """Put one set of inputs to all peers, one after the other."""
    found = folder / "found"
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir()
    failed = {}
    for peer in peers:
        print(peer, flush=True)
        command = [str(pythons[peer]), "-m", f"benchmarks.peers.{peer}"]
        done = subprocess.run(
            [*command, str(folder / "inputs"), str(found)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            failed[peer] = _last_line(done.stderr) or f"it ended with {done.returncode}"
            print(f"  failed: {failed[peer]}", flush=True)
    inputs = Inputs(folder / "inputs")
    facts = {name: fact for name, fact in inputs.facts.items() if name != "judgements"}
    counts = {name: inputs.vectors(name) for name in facts["representations"]}
    facts["vectors_per_document"] = {
        name: len(vectors.documents) / vectors.count for name, vectors in counts.items()
    }
    return {"facts": facts, "rows": figures(peers, found, inputs), "failed": failed}


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _told(options: argparse.Namespace) -> list[str]:
    """Repeat the command, but for the folders that are only where they are here."""
    name, _, split = options.dataset.rpartition(":")
    arguments = [f"{Path(name).name}:{split}", "--model", Path(options.model).name]
    if options.trained:
        arguments += ["--trained", Path(options.trained).name]
    if options.documents:
        arguments += ["--documents", str(options.documents)]
    arguments += ["--queries", str(options.queries), "--token-queries", str(options.token_queries)]
    arguments += ["--few", str(options.few), *(["--again"] if options.again else [])]
    return [*arguments, "--synthetic", "x".join(map(str, options.synthetic))]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
