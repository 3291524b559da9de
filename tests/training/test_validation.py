from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.evaluation.evaluate import SearchPlan, search_all
from pseudoquery.evaluation.measures import MEASURES, evaluate, measure_per_query
from pseudoquery.index import Index
from pseudoquery.records import Qrel
from pseudoquery.training.validation import (
    DEPTH,
    HEADLINES,
    Validator,
    make_validation_set,
    per_query_measures,
    validate,
)
from tests.support.collection import write_collection

rankings = st.integers(1, 150).flatmap(
    lambda size: st.lists(
        st.tuples(
            st.permutations(range(size)),
            st.dictionaries(st.integers(-3, size - 1), st.integers(1, 4), max_size=15),
        ),
        min_size=1,
        max_size=4,
    )
)


@settings(max_examples=150)
@given(rankings)
def test_measures_are_those_of_ir_measures(asked: list[tuple[list[int], dict[int, int]]]) -> None:
    """With graded relevance, and with relevant documents that are not in the corpus."""
    places = np.array([ranking for ranking, _ in asked])
    found = per_query_measures(places, [gains for _, gains in asked])
    run = {
        f"q{query}": [(str(place), -float(rank)) for rank, place in enumerate(ranking)]
        for query, (ranking, _) in enumerate(asked)
    }
    size = places.shape[1]
    qrels = [
        Qrel(f"q{query}", str(place), gain)
        for query, (_, gains) in enumerate(asked)
        for place, gain in (gains or {size: 0}).items()
    ]
    expected = measure_per_query(run, qrels)
    assert set(found) == set(MEASURES)
    for name, values in expected.items():
        truth = [values[f"q{query}"] for query in range(len(asked))]
        np.testing.assert_allclose(found[name], truth, atol=1e-9, err_msg=name)


def test_validation_is_what_the_index_and_ir_measures_find(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    dataset = load_dataset(str(write_collection(tmp_path / "set")), "dev")
    dataset = replace(
        dataset,
        qrels=(*dataset.qrels, Qrel("q0-2", "d3", 2), Qrel("q1-2", "nowhere", 1)),
    )
    index = Index.create(tmp_path / "index", model=tiny_model, vector_type="float32", tokens="none")
    index.add(dataset.documents())
    run = search_all(index, dataset, SearchPlan(top=DEPTH, exact=True), lambda _: None)
    found = validate(tiny_model, make_validation_set(tiny_model, dataset))
    assert found == pytest.approx(evaluate(run, dataset.qrels), abs=1e-9)
    assert found["R@1000"] < 1, "a document that is not there can't be found"


def test_only_judged_queries_count(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    dataset = load_dataset(str(write_collection(tmp_path / "set")), "dev")
    wrong = replace(dataset, qrels=(*dataset.qrels[1:], Qrel("q0-2", "d0", 0)))
    validation_set = make_validation_set(tiny_model, wrong, "named")
    assert (validation_set.name, len(validation_set.queries), validation_set.gains[0]) == (
        "named",
        12,
        {},
    )
    fewer = make_validation_set(tiny_model, replace(dataset, qrels=dataset.qrels[1:]))
    assert (fewer.name, len(fewer.queries)) == ("set", 11)
    with pytest.raises(CorpusError, match="set has no judgements to evaluate by"):
        make_validation_set(tiny_model, replace(dataset, qrels=()))


def test_the_validator_reports_the_headlines(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    validation_set = make_validation_set(
        tiny_model, load_dataset(str(write_collection(tmp_path / "set")), "dev")
    )
    reported = Validator([validation_set, replace(validation_set, name="again")])(tiny_model)
    truth = validate(tiny_model, validation_set)
    assert reported == {
        f"{name}_{measure}": truth[measure] for name in ("set", "again") for measure in HEADLINES
    }
    assert Validator([validation_set]).primary_metric in reported
    assert Validator([])(tiny_model) == {}
