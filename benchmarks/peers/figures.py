"""What the peers found, judged: quality by judgements, recall by each one's exact answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.measure import DEEP, TOP, Inputs
from pseudoquery.evaluation.measures import evaluate
from pseudoquery.records import Qrel

Row = Mapping[str, Any]
MEASURES = (("MRR@10", "RR@10"), ("nDCG@10", "nDCG@10"))
"""What they are called here, and by ir-measures."""


def figures(peers: Sequence[str], folder: Path, inputs: Inputs) -> list[Row]:
    """Read what was found by the peers that came to an end, and add what it is worth."""
    rows: list[Row] = []
    for peer in peers:
        path = folder / f"{peer}.json"
        if not path.exists():
            continue
        measured = json.loads(path.read_text("utf-8"))
        for row in measured["rows"]:
            with np.load(folder / row["rankings"]) as rankings:
                worth = _worth(row, rankings["top"], rankings["deep"], inputs)
            facts = {name: value for name, value in row.items() if name != "rankings"}
            rows.append({"peer": peer, "versions": measured["versions"], **facts, **worth})
    return rows


def _worth(
    row: Row, top: NDArray[np.int64], deep: NDArray[np.int64], inputs: Inputs
) -> dict[str, float]:
    worth: dict[str, float] = {}
    facts = inputs.facts
    if facts["judgements"]:
        worth |= {name: quality(top, facts["judgements"], measure) for name, measure in MEASURES}
        # Late interaction is asked fewer questions: on those, all can be compared.
        few = facts["representations"].get("tokens", facts)["queries"]
        worth["MRR@10 of few"] = quality(top[:few], facts["judgements"], MEASURES[0][1])
    if row["score"]:
        name = f"{row['representation']}.exact-{row['score']}.npy"
        exact = np.load(inputs.folder / name)
        worth |= {f"recall@{TOP}": recall(top, exact), f"recall@{DEEP}": recall(deep, exact)}
    return worth


def quality(
    top: NDArray[np.int64], judgements: Sequence[tuple[int, int, int]], measure: str
) -> float:
    """Judge the rankings of the first queries, in percent."""
    qrels = [
        Qrel(str(query), str(document), rel)
        for query, document, rel in judgements
        if query < len(top)
    ]
    run = {
        str(query): [(str(document), 0.0) for document in ranking if document >= 0]
        for query, ranking in enumerate(top.tolist())
    }
    return 100 * evaluate(run, qrels, [measure])[measure]


def recall(rankings: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Say which part of the exact answers, as deep as was asked for, was found."""
    exact = exact[: len(rankings), : rankings.shape[1]]
    hits = sum(
        len(np.intersect1d(ranking, other)) for ranking, other in zip(rankings, exact, strict=True)
    )
    return hits / exact.size
