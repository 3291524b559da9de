"""Measure what token codes give with a model, before any default is chosen.

    python -m benchmarks.token_codes DATA_FOLDER COLLECTION ... --table forms --cache FOLDER

DATA_FOLDER holds test collections as folders in the BEIR format. Tables:

    forms      tokens in 16 bits, 8 bits or one bit a number, by how many are ranked again
    question   what the question's tokens are rounded to, which take part, what each weighs
    bits       other uses of the same bytes: rotations, projections, two bits, weights of numbers
    trained    a projection trained for signs, on embeddings as they are
    fewer      leaving tokens out
    fusion     with BM25, by weight and by how scores are scaled

Encoding takes most of the time; --cache keeps what was encoded. Each table goes to a JSON file of
its name. Rows of collections that are not named stay as they are, but for the last table, which
needs all collections at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.token_codes import fewer, fusion, tables
from benchmarks.token_codes.collection import Collection
from benchmarks.token_codes.judged import Judged, Row
from benchmarks.token_codes.learning import Training
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.precision import in_precision
from pseudoquery.research.provenance import describe_commit

Table = Callable[[Judged, Training], Iterator[Row]]
BY_COLLECTION: dict[str, Table] = {
    "forms": tables.forms,
    "question": tables.question,
    "bits": tables.bits,
    "trained": tables.trained,
    "fewer": fewer.fewer_tokens,
}
OVER_ALL: dict[str, Callable[[Sequence[Judged]], Iterator[Row]]] = {
    "fusion": fusion.weights,
}
"""Tables whose rows need all collections at once."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    model = in_precision(load_model(options.model, device="cpu"), options.precision)

    def collection(name: str) -> Collection:
        return Collection(options.data / name, options.cache, model)

    all_judged = [
        Judged(chosen, chosen.splits[-1], options.questions)
        for chosen in map(collection, options.collections)
    ]
    if options.table in OVER_ALL:
        _write(options, OVER_ALL[options.table](all_judged))
        return
    training = Training(tuple(map(collection, options.learn_from)), options.sample)
    for judged in all_judged:
        _write(options, BY_COLLECTION[options.table](judged, training))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--table", choices=[*BY_COLLECTION, *OVER_ALL], required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/token-codes"))
    parser.add_argument("--questions", type=int, default=1500, help="sampled, of each split")
    parser.add_argument(
        "--learn-from",
        nargs="+",
        default=["squad-documents", "nq-qed", "scifact"],
        help="collections whose training documents say what tokens are like in general",
    )
    parser.add_argument("--sample", type=int, default=60_000, help="tokens to learn from")
    parser.add_argument("--model", default="default")
    parser.add_argument("--precision", default="openvino-float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser


def _write(options: argparse.Namespace, rows: Iterator[Row]) -> None:
    """Write rows as they come, in place of the old ones of the same collections."""
    path = options.out / f"{options.table}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    again = options.table in BY_COLLECTION and path.exists()
    old = json.loads(path.read_text())["rows"] if again else []
    new: list[Row] = []
    commit = describe_commit()
    for row in rows:
        print(json.dumps(row), flush=True)
        new.append({**row, "commit": commit})
        measured = {row.get("collection") for row in new}
        kept = [row for row in old if row["collection"] not in measured]
        lines = ",\n".join(json.dumps(row) for row in kept + new)
        path.write_text(f'{{"table": "{options.table}", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
