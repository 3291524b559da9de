"""How good a ranking is, by the measures of ir-measures.

Every judged query counts. A query that a run leaves out scores zero, so that no run looks better by
answering less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import ir_measures
import numpy as np
from scipy import stats

from pseudoquery.errors import QueryError
from pseudoquery.evaluation.answer_match import top_accuracy
from pseudoquery.evaluation.trec_runs import Run
from pseudoquery.records import Qrel, Query

MEASURES = (
    "RR@10",
    "RR@100",
    "nDCG@10",
    "R@1000",
    "Success@1",
    "Success@5",
    "Success@20",
    "Success@100",
)
"""The default measures, by their names in ir-measures. MRR is the mean of RR, and top-k accuracy
that of Success@k."""
LARGEST = 2**31 - 1
"""Of a cutoff, or a relevance, that trec_eval takes."""
ANSWER_DEPTHS = (1, 5, 20, 100)
"""The k of each top-k accuracy by answers."""

PerQuery = Mapping[str, Mapping[str, float]]
"""For each measure, the value of each query."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared by one measure, query by query."""

    measure: str
    first: float
    """The average of the first run."""
    second: float
    """The average of the second run."""
    better: int
    """For how many queries the first run is better."""
    worse: int
    """For how many queries the first run is worse."""
    p_value: float
    """The p-value of the paired, two-sided t-test that the averages are equal."""


def evaluate(
    run: Run, qrels: Iterable[Qrel], measures: Sequence[str] = MEASURES
) -> dict[str, float]:
    """Compute each measure, averaged over all judged queries.

    >>> run = {"q1": [("d2", 0.9), ("d1", 0.5)]}
    >>> evaluate(run, [Qrel("q1", "d1", 1)], ["RR@10"])
    {'RR@10': 0.5}
    """
    return average(measure_per_query(run, qrels, measures))


def average(values: PerQuery) -> dict[str, float]:
    """Average each measure over its queries."""
    return {
        name: float(np.mean(list(by_query.values()) or [0.0])) for name, by_query in values.items()
    }


def measure_per_query(
    run: Run, qrels: Iterable[Qrel], measures: Sequence[str] = MEASURES
) -> dict[str, dict[str, float]]:
    """Compute each measure for each judged query; an unknown measure is an error."""
    judged = [ir_measures.Qrel(*qrel) for qrel in qrels]
    # Ranks decide, not scores: ir-measures would put equal scores into another order.
    ranked = [
        ir_measures.ScoredDoc(query, document, -float(rank))
        for query, ranking in run.items()
        for rank, (document, _) in enumerate(ranking)
    ]
    parsed = {name: _parse_measure(name) for name in measures}
    # By measure, not by name: a measure may be given by two names, such as RR and MRR.
    values = {
        measure: dict.fromkeys((qrel.query_id for qrel in judged), 0.0)
        for measure in parsed.values()
    }
    for metric in ir_measures.iter_calc(list(values), judged, ranked):
        values[metric.measure][metric.query_id] = float(metric.value)
    return {name: dict(values[measure]) for name, measure in parsed.items()}


def measures_within(measures: Sequence[str], depth: float) -> list[str]:
    """Leave out measures that look deeper than the rankings go, which would come out too low."""
    return [name for name in measures if (_parse_measure(name).params.get("cutoff") or 0) <= depth]


def answer_accuracy(
    run: Run, queries: Iterable[Query], texts: Mapping[str, str], depth: float = inf
) -> dict[str, dict[str, float]]:
    """Compute top-k accuracy by answers, as DPR defines it, for the queries that have answers.

    A k that is larger than the depth of the rankings is left out.
    """
    answers = {query.id: query.answers for query in queries if query.answers}
    if not answers:
        return {}
    return {
        f"answer@{top}": top_accuracy(run, texts, answers, top)
        for top in ANSWER_DEPTHS
        if top <= depth
    }


def compare_runs(first: PerQuery, second: PerQuery) -> list[Comparison]:
    """Test, for each measure that both have, whether two runs differ by more than chance."""
    return [_compare_by(name, first[name], second[name]) for name in first if name in second]


def _compare_by(name: str, first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    if first.keys() != second.keys():
        raise QueryError(f"the two runs were not judged on the same queries ({name}).")
    firsts = np.array(list(first.values()))
    seconds = np.array([second[query] for query in first])
    differences = firsts - seconds
    # The test divides by the spread of the differences, which equal runs and single queries lack.
    has_spread = differences.any() and len(differences) > 1
    p_value = float(stats.ttest_rel(firsts, seconds).pvalue) if has_spread else 1.0
    averages = average({"first": first, "second": second})
    return Comparison(
        name,
        averages["first"],
        averages["second"],
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        p_value,
    )


def _is_computed(measure: ir_measures.Measure) -> bool:
    """Say whether ir-measures computes a measure by itself, and not by a program in Perl."""
    providers = ir_measures.DefaultPipeline.providers
    first = next(
        (each for each in providers if each.supports(measure) and each.is_available()), None
    )
    return first is not None and first.NAME != "gdeval"


def _parse_measure(name: str) -> ir_measures.Measure:
    try:
        measure = ir_measures.parse_measure(name)
        measure.validate_params()  # type: ignore[no-untyped-call]
        # trec_eval ends the whole process at a cutoff of 0; a relevance of 0 is everything's.
        numbers = [measure.params.get(parameter, 1) for parameter in ("cutoff", "rel")]
        if min(numbers) < 1 or max(numbers) > LARGEST or not _is_computed(measure):
            raise ValueError(name)
        return measure
    except (ValueError, NameError, KeyError, SyntaxError, AssertionError) as error:
        raise QueryError(
            f"there is no measure {name!r}; use ir-measures' names, such as {', '.join(MEASURES)}."
        ) from error
