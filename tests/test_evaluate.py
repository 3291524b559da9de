from __future__ import annotations

import pytest

from pseudoquery.evaluate import Run, evaluate, run_of
from pseudoquery.records import Answer, Hit, Qrel, Query


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
    figures = evaluate(run, qrels)
    assert list(figures) == ["RR@10", "Success@20"]
    assert figures["RR@10"] == pytest.approx((1 + 1 / 3 + 0 + 0 + 0 + 1 / 2) / 6)
    assert figures["Success@20"] == pytest.approx((1 + 1 + 1 + 1 + 0 + 1) / 6)


def test_a_query_missing_from_the_run_counts_as_zero() -> None:
    qrels = [Qrel(query, "a", 1) for query in ("1", "2", "3", "4")]
    run: Run = {"1": falling("a"), "2": falling("x", "a"), "3": []}
    assert evaluate(run, qrels) == {"RR@10": 1.5 / 4, "Success@20": 2 / 4}


def test_an_empty_run_scores_zero() -> None:
    assert evaluate({}, [Qrel("1", "a", 1)]) == {"RR@10": 0.0, "Success@20": 0.0}


def test_a_query_without_judgements_does_not_count() -> None:
    run = {"1": falling("a"), "unjudged": falling("x")}
    assert evaluate(run, [Qrel("1", "a", 1)]) == {"RR@10": 1.0, "Success@20": 1.0}


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


def test_a_run_of_answers() -> None:
    hits = tuple(Hit(id_, score, "", "", {}) for id_, score in (("a", 2.0), ("b", 1.0)))
    answers = [Answer("one?", hits, True, 2), Answer("two?", (), False, 0)]
    queries = [Query("1", "one?"), Query("2", "two?")]
    assert run_of(queries, answers) == {"1": [("a", 2.0), ("b", 1.0)], "2": []}


def test_a_run_needs_an_answer_for_every_query() -> None:
    with pytest.raises(ValueError, match="shorter"):
        run_of([Query("1", "one?")], [])
