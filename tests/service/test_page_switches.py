"""The page's switches in a real browser: hybrid, exact, compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import QUERY, Visit, visiting
from tests.support.collection import WORDS
from tests.support.serving import Running, running

MANY = 400
"""Documents: more than the first step recalls."""


def test_hybrid_and_the_number_shown(visit: Visit, shared: Running) -> None:
    hits = visit.open().ask(QUERY)
    visit.page.get_by_role("switch", name="Hybrid").check()
    (answer,) = shared.search(QUERY, mode="hybrid")
    expect(hits.first.locator(".score")).to_have_text(f"{answer['hits'][0]['score']:.3g}")
    assert visit.ids(visit.hits(QUERY)) == [hit["id"] for hit in answer["hits"]]
    for choice, rows in (("1", 1), ("2", 2), ("all", 4)):
        visit.page.get_by_label("Pseudo queries shown").select_option(label=choice)
        expect(hits.first.locator(".weight")).to_have_count(rows)
        visit.hits(QUERY)
        numbers = hits.first.locator("mark").evaluate_all(
            "all => all.map(one => one.dataset.number)"
        )
        assert {int(number) for number in numbers} <= set(range(rows))
        expect(hits.first.locator(".rest")).to_have_count(0 if rows == 4 else 1)
    visit.page.reload()  # the address holds it all
    expect(visit.page.locator("#hybrid")).to_be_checked()
    assert visit.ids(visit.hits(QUERY)) == [hit["id"] for hit in answer["hits"]]


def test_a_ranking_that_is_not_proven_can_be(
    browser: Browser,
    tmp_path: Path,
    tiny_model: MultiVectorEncoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if it were a large index: the first step is approximate, and proves nothing.
    monkeypatch.setattr("pseudoquery.search.structures.FLAT8_BELOW", 20)
    index = Index.create(tmp_path / "many", model=tiny_model)
    index.add(
        Document(f"d{number}", " ".join(WORDS[number % step] for step in (30, 29, 23, 19, 7)))
        for number in range(MANY)
    )
    with running(index) as service, visiting(browser, service.url) as visit:
        query = "king"
        visit.open().ask(query)
        status = visit.page.locator("#status")
        expect(status).to_contain_text(
            "The 100 best documents by pseudo queries (not proven), ordered by their words."
        )
        expect(status.get_by_text("This is about scores only.")).to_be_hidden()
        status.locator("summary").click()
        expect(status.get_by_text("This is about scores only.")).to_be_visible()
        visit.page.get_by_role("button", name="Compare with every document").click()
        expect(status).to_contain_text("Proven: no other document scores higher.")
        expect(visit.page.get_by_role("switch", name="Exact")).to_be_checked()
        exact = service.search(query, exact=True)[0]["hits"]
        assert visit.ids(visit.page.locator(".hit")) == [hit["id"] for hit in exact]
        visit.check()


def test_side_by_side(visit: Visit, shared: Running) -> None:
    visit.open().ask(QUERY)
    for hybrid in (False, True):
        visit.page.get_by_role("switch", name="Hybrid").set_checked(hybrid)
        visit.page.get_by_role("switch", name="Compare").check()
        name = "Pseudo queries + tokens + BM25" if hybrid else "Pseudo queries + tokens"
        first = visit.page.get_by_role("region", name=name, exact=True)
        expect(first).to_be_visible()
        mode = "hybrid" if hybrid else "dense"
        answers = shared.ask("POST", "/compare", {"query": QUERY, "mode": mode}).json
        found = {way: [hit["id"] for hit in answers[way]["hits"]] for way in answers}
        for way, ids in found.items():
            assert visit.ids(visit.page.locator(f"[data-way={way}] li")) == ids
        only = [
            id_
            for id_ in found["pseudo_queries"]
            if id_ not in found["bm25"] and id_ not in found["one_vector"]
        ]
        assert visit.ids(visit.page.locator("li:has(.added)")) == only
        row = visit.page.locator("[data-way=bm25] li").first
        ours = found["pseudo_queries"]
        here = found["bm25"][0]
        said = f"ranked {ours.index(here) + 1} in" if here in ours else "not in the first"
        expect(row.locator(".moved")).to_contain_text(said)
        row.hover()
        assert set(visit.ids(visit.page.locator("li.same"))) == {here}
    expect(visit.page.get_by_role("region", name="One vector")).to_contain_text(
        "the mean of its pseudo queries"
    )
