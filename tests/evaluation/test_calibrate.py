"""Constants that make relevances of scores: found again where they are known."""

from __future__ import annotations

import numpy as np
import pytest

from pseudoquery.corpus.datasets import Dataset
from pseudoquery.errors import QueryError
from pseudoquery.evaluation.calibrate import (
    FOREIGN,
    JudgedCollection,
    JudgedHits,
    check_reliability,
    fit_constants,
    foreign_questions,
)
from pseudoquery.records import Query
from pseudoquery.search.relevance import RIVALS, Calibration
from tests.support.collection import DOCUMENTS

STEEPNESS, THRESHOLD = 40.0, 0.45
NOTHING = JudgedHits(np.zeros((0, RIVALS)), np.zeros((0, RIVALS), dtype=bool))


def draw(questions: int, seed: int = 0) -> JudgedHits:
    """Draw hits whose answers follow the model with these constants."""
    generator = np.random.default_rng(seed)
    scores = -np.sort(-generator.normal(0.4, 0.08, (questions, RIVALS)), axis=1)
    constants = Calibration("", "signs", 0.2, STEEPNESS, THRESHOLD)
    relevant = np.zeros(scores.shape, dtype=bool)
    for row, shares in enumerate(map(constants.relevances, scores)):
        answer = generator.choice(RIVALS + 1, p=[*shares, max(0.0, 1 - shares.sum())])
        if answer < RIVALS:
            relevant[row, answer] = True
    return JudgedHits(scores, relevant)


def test_constants_are_found_again() -> None:
    steepness, threshold = fit_constants([JudgedCollection(draw(20_000), NOTHING)])
    assert steepness == pytest.approx(STEEPNESS, rel=0.05)
    assert threshold == pytest.approx(THRESHOLD, abs=0.005)


def test_questions_without_an_answer_raise_the_threshold() -> None:
    own = draw(5_000)
    foreign = JudgedHits(draw(5_000, seed=1).scores, np.zeros((5_000, RIVALS), dtype=bool))
    alone = fit_constants([JudgedCollection(own, NOTHING)])
    both = fit_constants([JudgedCollection(own, foreign)])
    assert both[1] > alone[1] + 0.005


def test_a_collection_counts_as_much_as_any_other() -> None:
    first, second = draw(5_000), draw(500, seed=1)
    shifted = JudgedHits(second.scores + 0.2, second.relevant)
    collections = [JudgedCollection(hits, NOTHING) for hits in (first, shifted)]
    once, twice = fit_constants(collections), fit_constants(collections * 2)
    assert once == pytest.approx(twice, rel=1e-3)
    many = JudgedHits(np.tile(shifted.scores, (10, 1)), np.tile(shifted.relevant, (10, 1)))
    again = fit_constants([collections[0], JudgedCollection(many, NOTHING)])
    assert again == pytest.approx(once, rel=1e-3)


def test_reliability_is_judged_by_the_others_constants() -> None:
    honest = JudgedCollection(draw(5_000), draw(500, seed=3))
    same = JudgedCollection(draw(5_000, seed=1), NOTHING)
    wrong = JudgedCollection(JudgedHits(honest.own.scores - 0.2, honest.own.relevant), NOTHING)
    checked = check_reliability({"honest": honest, "same": same})
    assert checked["honest"].predicted == pytest.approx(checked["honest"].relevant, abs=0.03)
    assert 0 < checked["honest"].foreign < 1
    assert checked["same"].foreign == 0, "it was asked no others"
    checked = check_reliability({"honest": honest, "wrong": wrong})
    assert checked["wrong"].predicted < checked["wrong"].relevant - 0.2
    alone = check_reliability({"honest": honest})["honest"]
    assert alone.relevant == honest.own.relevant[:, 0].mean()


def test_an_index_of_other_documents_is_refused() -> None:
    nothing = JudgedHits(np.full((3, RIVALS), -np.inf), np.zeros((3, RIVALS), dtype=bool))
    with pytest.raises(QueryError, match="no question finds anything"):
        fit_constants([JudgedCollection(nothing, nothing)])


def test_foreign_questions_come_from_all_the_others() -> None:
    def dataset(name: str, count: int) -> Dataset:
        queries = tuple(Query(f"{row}", f"{name} {row}") for row in range(count))
        return Dataset(name, "", lambda: iter(DOCUMENTS), queries, ())

    drawn = foreign_questions([dataset("a", 1_000), dataset("b", 1_000), dataset("c", 10)])
    texts = [query.text for query in drawn.queries]
    assert len(texts) == len(set(texts)) == 2 * FOREIGN // 3 + 10
    assert {text.split()[0] for text in texts} == {"a", "b", "c"}
    assert len({query.id for query in drawn.queries}) == len(texts)
    assert foreign_questions([]).queries == ()
