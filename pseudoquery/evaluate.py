"""How good a ranking is: runs and judgements in, the field's own metrics out.

Every judged query counts: one that a run leaves out scores zero, so no run looks better by
answering less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import ir_measures

from pseudoquery.records import Answer, Qrel, Query

Run = Mapping[str, Sequence[tuple[str, float]]]
"""For each query's id, the ids and scores of its documents, best first."""

DEMO_MEASURES = ("RR@10", "Success@20")


def run_of(queries: Sequence[Query], answers: Sequence[Answer]) -> Run:
    """Make a run of the answers to queries."""
    return {
        query.id: [(hit.id, hit.score) for hit in answer.hits]
        for query, answer in zip(queries, answers, strict=True)
    }


def evaluate(
    run: Run, qrels: Iterable[Qrel], measures: Sequence[str] = DEMO_MEASURES
) -> dict[str, float]:
    """Average each measure, named as in ir-measures, over all judged queries."""
    judged = [ir_measures.Qrel(*qrel) for qrel in qrels]
    # Ranks decide, not scores: equal scores would otherwise be put into another order.
    ranked = [
        ir_measures.ScoredDoc(query, document, -float(rank))
        for query, ranking in run.items()
        for rank, (document, _) in enumerate(ranking)
    ]
    parsed = [ir_measures.parse_measure(name) for name in measures]
    figures = ir_measures.calc_aggregate(parsed, judged, ranked)
    return {name: float(figures[measure]) for name, measure in zip(measures, parsed, strict=True)}
