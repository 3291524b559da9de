from __future__ import annotations

import math

import pytest
from scipy import stats

from pseudoquery.errors import QueryError
from pseudoquery.evaluation.measures import (
    MEASURES,
    Comparison,
    answer_accuracy,
    average,
    compare_runs,
    evaluate,
    measure_per_query,
)
from pseudoquery.evaluation.trec_runs import Run
from pseudoquery.records import Qrel, Query

TWO = ("RR@10", "Success@20")


def falling(*documents: str) -> list[tuple[str, float]]:
    """Rank documents in this order, with falling scores."""
    return [(document, float(-rank)) for rank, document in enumerate(documents)]


def fillers(count: int) -> list[str]:
    return [f"filler{number}" for number in range(count)]


def test_by_hand() -> None:
    qrels = [
        Qrel("first", "a", 1),
        Qrel("third", "b", 1),
        Qrel("eleventh", "c", 1),
        Qrel("twentieth", "d", 1),
        Qrel("twenty-first", "e", 1),
        Qrel("several", "f", 1),
        Qrel("several", "g", 2),
        Qrel("several", "h", 0),
    ]
    run = {
        "first": falling("a", "x"),
        "third": falling("x", "y", "b"),
        "eleventh": falling(*fillers(10), "c"),
        "twentieth": falling(*fillers(19), "d"),
        "twenty-first": falling(*fillers(20), "e"),
        "several": falling("h", "g", "f"),  # judged as wrong, then the first right one
    }
    figures = evaluate(run, qrels, TWO)
    assert list(figures) == ["RR@10", "Success@20"]
    assert figures["RR@10"] == pytest.approx((1 + 1 / 3 + 0 + 0 + 0 + 1 / 2) / 6)
    assert figures["Success@20"] == pytest.approx((1 + 1 + 1 + 1 + 0 + 1) / 6)


def test_a_query_missing_from_the_run_counts_as_zero() -> None:
    qrels = [Qrel(query, "a", 1) for query in ("1", "2", "3", "4")]
    run: Run = {"1": falling("a"), "2": falling("x", "a"), "3": []}
    assert evaluate(run, qrels, TWO) == {"RR@10": 1.5 / 4, "Success@20": 2 / 4}
    assert measure_per_query(run, qrels, ["RR@10"]) == {
        "RR@10": {"1": 1.0, "2": 0.5, "3": 0.0, "4": 0.0}
    }


def test_an_empty_run_scores_zero() -> None:
    assert evaluate({}, [Qrel("1", "a", 1)]) == dict.fromkeys(MEASURES, 0.0)
    assert evaluate({}, []) == dict.fromkeys(MEASURES, 0.0)


def test_a_query_without_judgements_does_not_count() -> None:
    run = {"1": falling("a"), "unjudged": falling("x")}
    assert evaluate(run, [Qrel("1", "a", 1)]) == dict.fromkeys(MEASURES, 1.0)
    assert list(measure_per_query(run, [Qrel("1", "a", 1)], TWO)["RR@10"]) == ["1"]


def test_a_query_without_a_right_document_counts_as_zero() -> None:
    qrels = [Qrel("1", "a", 1), Qrel("2", "a", 0)]
    run = {"1": falling("a"), "2": falling("a")}
    assert evaluate(run, qrels, TWO) == {"RR@10": 0.5, "Success@20": 0.5}


@pytest.mark.parametrize("order", [["b", "a", "c"], ["a", "b", "c"], ["c", "b", "a"]])
def test_equal_scores_keep_the_order_of_the_run(order: list[str]) -> None:
    run = {"1": [(document, 0.5) for document in order]}
    assert evaluate(run, [Qrel("1", "b", 1)])["RR@10"] == 1 / (order.index("b") + 1)


def test_ranks_decide_even_where_scores_contradict() -> None:
    run = {"1": [("a", 1e-30), ("b", 1e30)]}
    assert evaluate(run, [Qrel("1", "b", 1)])["RR@10"] == 1 / 2


def test_judgements_may_come_once() -> None:
    assert evaluate({"1": falling("a")}, iter([Qrel("1", "a", 1)]))["RR@10"] == 1.0


def test_other_measures_by_their_names() -> None:
    qrels = [Qrel("1", "a", 1), Qrel("1", "b", 1)]
    figures = evaluate({"1": falling("x", "a")}, qrels, ["R@2", "P@2", "RR@1"])
    assert figures == {"R@2": 0.5, "P@2": 0.5, "RR@1": 0.0}
    graded = [Qrel("1", "a", 1), Qrel("1", "b", 3)]
    gain = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    figures = evaluate({"1": falling("a", "b")}, graded, ["nDCG@10"])
    assert figures["nDCG@10"] == pytest.approx(gain)


def test_one_measure_by_two_names() -> None:
    figures = evaluate({"1": falling("x", "a")}, [Qrel("1", "a", 1)], ["RR@10", "MRR@10"])
    assert figures == {"RR@10": 0.5, "MRR@10": 0.5}


@pytest.mark.parametrize(
    "name", ["", "foo", "RR@", "RR@x", "P", "RR(foo=1)@10", "nDCG@1.5", "1", "RR@1 P@1", "\0"]
)
def test_an_unknown_measure_is_said_in_one_sentence(name: str) -> None:
    with pytest.raises(QueryError, match=r"there is no measure .*; use .* such as RR@10, .*\.$"):
        evaluate({}, [Qrel("1", "a", 1)], [name])


def test_means_of_nothing_are_zero() -> None:
    assert average({"RR@10": {}, "P@1": {"1": 1.0, "2": 0.0}}) == {"RR@10": 0.0, "P@1": 0.5}


def test_answers_by_hand() -> None:
    queries = [
        Query("1", "?", ("Paris",)),
        Query("2", "?", ("nowhere", "the Nile")),
        Query("3", "?", ("lost",)),
        Query("4", "? without answers"),
    ]
    texts = {"a": "It is in Paris.", "b": "The Nile flows.", "c": "Parisian"}
    run = {"1": falling("c", "a"), "2": falling("b"), "4": falling("a")}
    accuracy = answer_accuracy(run, queries, texts)
    assert list(accuracy) == ["answer@1", "answer@5", "answer@20", "answer@100"]
    assert accuracy["answer@1"] == {"1": 0.0, "2": 1.0, "3": 0.0}
    assert accuracy["answer@5"] == {"1": 1.0, "2": 1.0, "3": 0.0}
    assert average(accuracy)["answer@5"] == pytest.approx(2 / 3)
    assert answer_accuracy(run, queries[3:], texts) == {}


def test_two_runs_compared() -> None:
    first = {"1": 1.0, "2": 0.5, "3": 0.0, "4": 1.0}
    second = {"4": 0.5, "3": 0.25, "2": 0.5, "1": 0.0}  # in another order
    comparisons = compare_runs({"RR@10": first, "P@1": first}, {"RR@10": second})
    expected = stats.ttest_rel([1.0, 0.5, 0.0, 1.0], [0.0, 0.5, 0.25, 0.5]).pvalue
    assert comparisons == [Comparison("RR@10", 0.625, 0.3125, 2, 1, expected)]


@pytest.mark.parametrize("values", [{}, {"1": 0.5}, {"1": 0.5, "2": 1.0}])
def test_equal_runs_do_not_differ(values: dict[str, float]) -> None:
    comparison = compare_runs({"RR@10": values}, {"RR@10": values})[0]
    assert (comparison.better, comparison.worse, comparison.p_value) == (0, 0, 1.0)
    assert comparison.first == comparison.second == average({"RR@10": values})["RR@10"]


@pytest.mark.filterwarnings("ignore:Precision loss")
def test_runs_that_differ_alike_everywhere_have_a_p_value() -> None:
    comparison = compare_runs({"P@1": {"1": 1.0, "2": 1.0}}, {"P@1": {"1": 0.0, "2": 0.0}})[0]
    assert (comparison.better, comparison.worse) == (2, 0)
    assert 0 <= comparison.p_value <= 1
    alone = compare_runs({"P@1": {"1": 1.0}}, {"P@1": {"1": 0.0}})[0]
    assert alone.p_value == 1.0, "one query proves nothing"


def test_runs_on_other_queries_cannot_be_compared() -> None:
    with pytest.raises(QueryError, match="not judged on the same queries"):
        compare_runs({"P@1": {"1": 1.0}}, {"P@1": {"2": 1.0}})
