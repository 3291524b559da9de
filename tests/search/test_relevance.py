"""Relevance: a share of the best hits, known for one model, one kind of tokens and one mix."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.encoding.model import fingerprint, load_model
from pseudoquery.errors import ModelError, QueryError
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.search.relevance import BUNDLED, FILE_NAME, RIVALS, Calibration
from pseudoquery.search.settings import SearchSettings

CALIBRATION = Calibration("model", "signs", 0.2, steepness=50.0, threshold=0.5)
scores = st.lists(st.floats(-1, 1), min_size=1, max_size=30).map(lambda row: sorted(row)[::-1])


@given(scores)
def test_a_relevance_is_a_share(row: list[float]) -> None:
    """As in the formula, term by term."""
    relevances = CALIBRATION.relevances(np.array(row)).tolist()
    weights = [math.exp(50.0 * (score - 0.5)) for score in row]
    whole = 1 + sum(weights[:RIVALS])
    assert relevances == pytest.approx([weight / whole for weight in weights], rel=1e-9)
    assert sum(relevances[:RIVALS]) <= 1 + 1e-9
    assert relevances == sorted(relevances, reverse=True)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.5], [0.5]),
        ([0.5, 0.5], [1 / 3, 1 / 3]),
        ([1.0], [1.0]),
        ([-math.inf, -math.inf], [0, 0]),
        ([], []),
    ],
)
def test_some_relevances(row: list[float], expected: list[float]) -> None:
    assert CALIBRATION.relevances(np.array(row)).tolist() == pytest.approx(expected)


def test_no_weight_overflows() -> None:
    steep = replace(CALIBRATION, steepness=1e6)
    assert steep.relevances(np.array([1.0, 0.9, -1.0])).tolist() == [1, 0, 0]


def test_the_bundled_constants_are_of_the_bundled_model() -> None:
    constants = Calibration(**json.loads(BUNDLED.read_bytes()))
    assert constants.fingerprint == fingerprint(load_model("default"))
    assert (constants.tokens, constants.vector_share) == ("signs", SearchSettings().vector_share)


@pytest.fixture
def calibrated(template: Path, tmp_path: Path, tiny_model_path: str) -> Index:
    """An index whose model has constants; hits of a random model have scores around 0.4."""
    model = shutil.copytree(tiny_model_path, tmp_path / "model")
    settings = Index.open(template).settings
    constants = Calibration(settings.fingerprint, "signs", 0.2, steepness=20.0, threshold=0.6)
    constants.write(model / FILE_NAME)
    made = Index.create(
        tmp_path / "index", model=str(model), representation=preset("recommended", k=4)
    )
    made.add(Index.open(template).documents())
    return Index.open(tmp_path / "index")


def test_hits_have_a_relevance(calibrated: Index) -> None:
    hits = calibrated.search("the king of the city").hits
    found = np.array([hit.score for hit in hits])
    expected = Calibration("", "signs", 0.2, 20.0, 0.6).relevances(found)
    assert [hit.relevance for hit in hits] == pytest.approx(expected.tolist())
    # In a hybrid search a hit is as relevant as its meaning says.
    by_id = {hit.id: hit.relevance for hit in hits}
    both = calibrated.search("the king of the city", mode="hybrid").hits
    assert both[0].id in by_id
    for hit in both:
        assert hit.relevance == pytest.approx(by_id.get(hit.id, hit.relevance))


def test_what_is_not_relevant_enough_is_left_out(calibrated: Index) -> None:
    everything = calibrated.search("the king of the city").hits
    least = everything[2].relevance
    for mode in ("dense", "hybrid"):
        settings = SearchSettings(min_relevance=least)
        some = calibrated.search("the king of the city", mode=mode, settings=settings).hits
        assert {hit.id for hit in some} == {hit.id for hit in everything[:3]}
    nothing = calibrated.search("king", settings=SearchSettings(min_relevance=1.0))
    assert nothing.hits == ()


@pytest.mark.parametrize(
    ("mode", "changes", "words"),
    [
        ("bm25", {}, "ranked by words alone"),
        ("dense", {"rank_by": "vectors"}, "ranked by vectors alone"),
        ("dense", {"vector_share": 0.5}, "a vector_share of 0.2 only"),
    ],
)
def test_where_no_relevance_is_known_a_limit_is_refused(
    calibrated: Index, mode: str, changes: dict[str, object], words: str
) -> None:
    settings = SearchSettings(**changes)  # type: ignore[arg-type]
    answer = calibrated.search("king", mode=mode, settings=settings)  # type: ignore[arg-type]
    assert {hit.relevance for hit in answer.hits} == {None}
    limited = replace(settings, min_relevance=0.5)
    with pytest.raises(QueryError, match=words):
        calibrated.search("king", mode=mode, settings=limited)  # type: ignore[arg-type]


def test_a_model_without_constants_has_no_relevance(template: Path) -> None:
    index = Index.open(template)
    assert {hit.relevance for hit in index.search("king").hits} == {None}
    with pytest.raises(QueryError, match="`pseudoquery calibrate`"):
        index.search("king", settings=SearchSettings(min_relevance=0.5))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"steepness": 1}',
        json.dumps(asdict(replace(CALIBRATION, steepness=-1.0))).encode(),
        json.dumps(asdict(replace(CALIBRATION, threshold=math.nan))).encode(),
    ],
)
def test_damaged_constants_are_refused(calibrated: Index, content: bytes) -> None:
    (Path(calibrated.settings.model) / FILE_NAME).write_bytes(content)
    with pytest.raises(ModelError, match=r"relevance\.json is damaged"):
        calibrated.search("king")


def test_constants_of_another_model_are_ignored(calibrated: Index) -> None:
    CALIBRATION.write(Path(calibrated.settings.model) / FILE_NAME)
    assert {hit.relevance for hit in calibrated.search("king").hits} == {None}
