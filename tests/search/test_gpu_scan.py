"""A GPU's answers are those of the CPU to the last bit, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from pseudoquery.index import Index
from pseudoquery.method.representation import Representation
from pseudoquery.records import Document
from pseudoquery.search import gpu_scan
from pseudoquery.search import structures as candidates
from pseudoquery.search.gpu_scan import GpuScan, can_grow, make_gpu_scan
from pseudoquery.search.settings import SearchSettings
from pseudoquery.search.two_step import Ranking, search
from pseudoquery.storage.vector_view import VectorView
from tests.storage.test_vector_view import view_of
from tests.support.search_cases import Case, cases
from tests.support.structures import build
from tests.support.triton_device import DEVICE, INTERPRETED

few = settings(max_examples=25 if INTERPRETED else 200, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # the interpreter's


def scan_of(view: VectorView, known: GpuScan | None = None) -> GpuScan:
    made = make_gpu_scan(view, known, DEVICE)
    assert made is not None
    return made


def same(found: list[Ranking], expected: list[Ranking]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.documents.tolist() == other.documents.tolist()
        assert one.scores.tolist() == other.scores.tolist()
        assert one.certified
        assert len(one.documents) <= one.candidates


@few
@given(case=cases())
def test_answers_are_the_cpus(case: Case) -> None:
    single = [query[:1] for query in case.queries]
    how = (single, case.settings, case.top)
    expected = search(case.view, build("flat8", case.view), *how, allowed=case.allowed)
    same(search(case.view, scan_of(case.view), *how, allowed=case.allowed), expected)


def random_view(count: int, seed: int = 0) -> VectorView:
    chance = np.random.default_rng(seed)
    drawn = [chance.normal(size=(chance.integers(1, 4), 8)) for _ in range(count)]
    return view_of(drawn, dimension=8, borders=[count // 2, count // 2 + 9], dtype="float16")


QUERIES = [np.random.default_rng(seed).normal(size=(1, 8)).astype(np.float32) for seed in range(3)]
HOW = (QUERIES, Representation(scale=5.0), 4)


def test_vectors_are_added_to_those_that_are_there() -> None:
    view = random_view(60)
    first = replace(view, segments=view.segments[:1], ordinals=view.ordinals[:30])
    first = replace(first, offsets=view.offsets[:31], live=view.live[:30])
    known = scan_of(first)
    assert not known.covers(view)
    assert can_grow(known, view)
    grown = scan_of(view, known)
    assert grown.covers(view)
    assert grown.parts[0] is known.parts[0]
    assert len(grown.parts) == 2
    same(search(view, grown, *HOW), search(view, build("flat8", view), *HOW))
    other = random_view(60, seed=1)
    assert not can_grow(known, other)
    assert not grown.covers(other)


def test_vectors_that_do_not_fit_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_scan, "_have_room", lambda *_: False)
    view = random_view(60)
    kept = scan_of(view)
    assert len(kept.parts) == len(view.segments)
    assert all(part.vectors.device.type == "cpu" for part in kept.parts)
    same(search(view, kept, *HOW), search(view, build("flat8", view), *HOW))


def test_if_all_estimates_are_close_more_are_asked_for() -> None:
    """Hundreds of equal documents, of which those that were added first are the answer."""
    view = view_of([np.ones((2, 8))] * 300, dimension=8)
    found = search(view, scan_of(view), *HOW)
    assert all(ranking.documents.tolist() == [0, 1, 2, 3] for ranking in found)
    assert all(ranking.candidates == 300 for ranking in found)


def test_a_sum_that_overflows_is_taken_in_double_precision() -> None:
    view = view_of([np.full((2, 8), 3e37), np.full((1, 8), 3.1e37)] * 3, dimension=8)
    how = ([np.ones((1, 8), dtype=np.float32)], Representation(scale=10.0), 2)
    same(search(view, scan_of(view), *how), search(view, build("flat", view), *how, exact=True))


def test_documents_of_too_many_vectors_are_left_to_the_cpu() -> None:
    assert make_gpu_scan(view_of([np.ones((300, 8))], dimension=8), None, DEVICE) is None


def test_an_index_asks_the_gpu_by_itself(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = SearchSettings(rank_by="vectors")  # so few documents are all ranked by tokens at once
    queries = ("king", "queen of the island")
    everything = [served.search(query, 3, settings=vectors) for query in queries]
    asked: list[int] = []

    def spied(scan: GpuScan, *arguments: Any) -> Any:
        asked.append(len(arguments[0]))
        return best(scan, *arguments)

    best = GpuScan.best
    monkeypatch.setattr(GpuScan, "best", spied)
    monkeypatch.setattr(candidates, "runs_kernels", lambda: True)
    monkeypatch.setattr(candidates, "make_gpu_scan", partial(make_gpu_scan, device=DEVICE))
    again = Index.open(served.folder, model=served.model)
    for before in everything:
        answer = again.search(before.query, 3, settings=vectors)
        assert answer.hits == before.hits
        assert answer.certified
    assert asked == [1, 1]
    # What is deleted, and what does not satisfy a filter, is not found; what is new is.
    gone = everything[0].hits[0].id
    again.delete([gone])
    assert gone not in [hit.id for hit in again.search("king", 3, settings=vectors).hits]
    again.add([Document("new", "king king king", metadata={"own": 1})])
    (only,) = again.search("king", 3, where={"own": 1}, settings=vectors).hits
    assert only.id == "new"
    # Another structure is as before.
    count = len(asked)
    again.search("king", 3, settings=replace(vectors, structure="flat8"))
    again.search("king", 3, settings=replace(vectors, recall_vectors=5))
    assert len(asked) == count
