"""The page's results in a real browser: ask, see why, open a document."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Request, Route, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import QUERY, Visit, numbers_of, visiting
from tests.support.serving import Running, running

CARDS = """cards => cards.map(card => {
    const all = (selector, read) => [...card.querySelectorAll(selector)].map(read);
    const text = one => one.textContent;
    return {
        title: all("h2 a", text)[0],
        score: all(".score", text)[0],
        text: all(".text", text)[0],
        percents: all(".percent", text),
        labels: all(".label", text),
        widths: all(".weight .fill", bar => bar.style.width),
        marks: all("mark", mark => [mark.dataset.number, mark.textContent]),
    };
})"""


def explained(service: Running, query: str, id_: str) -> Any:
    return service.ask("POST", "/explain", {"query": query, "id": id_}).json


def body_of(request: Request) -> Any:
    """The body of a request to the service."""
    return json.loads(request.post_data or "")


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


# --- asking


def test_hits_are_those_of_the_service_and_explained(visit: Visit, shared: Running) -> None:
    hits = visit.open().ask(QUERY)
    (answer,) = shared.search(QUERY)
    visit.explained()
    assert visit.ids(hits) == [hit["id"] for hit in answer["hits"]]
    for hit, card in zip(answer["hits"], hits.evaluate_all(CARDS), strict=True):
        assert card["title"] == (hit["title"] or hit["id"])
        assert float(card["score"]) == pytest.approx(hit["score"], rel=0.01)
        assert card["text"] == hit["text"]
        found = explained(shared, QUERY, hit["id"])["pseudo_queries"]
        assert card["percents"] == [f"{100 * one['weight']:.0f}%" for one in found]
        assert card["labels"] == [one["label"] or "(the title)" for one in found]
        widths = [float(width.removesuffix("%")) for width in card["widths"]]
        assert widths == pytest.approx([100 * one["weight"] for one in found], abs=0.01)
        for number, one in enumerate(found):
            marked = " ".join(text for owner, text in card["marks"] if owner == str(number))
            owned = " ".join(hit["text"][span["start"] : span["end"]] for span in one["spans"])
            assert words(marked) == words(owned)
    expect(visit.page.locator("#status")).to_contain_text("10 documents")


def test_the_passage_and_the_winner_are_in_focus(
    browser: Browser, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    text = "The moon rose over the river. The old king was in the city. A dog ate the bread. " * 19
    index = Index.create(tmp_path / "long", model=tiny_model)
    index.add([Document("long", text)])
    with running(index) as service, visiting(browser, service.url) as visit:
        card = visit.open().ask(QUERY)
        visit.explained()
        passage = explained(service, QUERY, "long")["passage"]
        expected = text[passage["start"] : passage["end"]]
        assert "".join(card.locator(".passage").all_inner_texts()) == expected
        shown = card.locator(".text").inner_text()
        assert expected in shown
        assert len(shown) < len(text) / 2
        strength = "mark => getComputedStyle(mark).backgroundColor.match(/\\/ ([0-9.]+)/)[1]"
        winner, other = (
            float(card.locator(f"mark.{colour}").first.evaluate(strength))
            for colour in ("c0", "c1")
        )
        assert winner > other
        card.get_by_role("button", name="Show the whole text").click()
        assert card.locator(".text").inner_text() == text.strip()
        card.get_by_role("button", name="Show less").click()
        assert card.locator(".text").inner_text() == shown
        visit.check()


def test_a_search_begins_when_the_typing_pauses(visit: Visit) -> None:
    visit.page.clock.install(time=datetime(2030, 1, 1, tzinfo=UTC))
    visit.open()
    visit.page.clock.pause_at(datetime(2030, 1, 2, tzinfo=UTC))
    for letter in "king":
        visit.page.locator("#query").press(letter)
        visit.page.clock.run_for(50)
    assert visit.sent("/search") == []
    with visit.page.expect_request("**/search"):
        visit.page.clock.run_for(200)
    assert [body_of(one)["query"] for one in visit.sent("/search")] == ["king"]


def test_an_answer_that_comes_late_is_dropped(visit: Visit, shared: Running) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if body_of(route.request)["query"] == "war":
            held.append(route)
        else:
            route.continue_()

    visit.page.route("**/search", hold)
    visit.open()
    with visit.page.expect_request("**/search"):
        visit.page.locator("#query").fill("war")
    late = visit.page.request.post(
        f"{shared.url}/search", data={"query": "war"}, headers={"Content-Type": "application/json"}
    )
    hits = visit.ask("bird song")
    (stale,) = held
    stale.fulfill(response=late)
    visit.page.wait_for_timeout(50)
    (answer,) = shared.search("bird song")
    assert visit.ids(hits) == [hit["id"] for hit in answer["hits"]]
    assert "bird" in visit.page.title()


def test_more_results(visit: Visit, shared: Running) -> None:
    visit.open().ask(QUERY)
    for count in (20, 30):
        visit.page.get_by_role("button", name="Show more").click()
        expect(visit.page.locator(".hit")).to_have_count(count)
        expect(visit.page.locator(".hit h2 a").nth(count - 10)).to_be_focused()
    (answer,) = shared.search(QUERY, top=30)
    assert visit.ids(visit.page.locator(".hit")) == [hit["id"] for hit in answer["hits"]]


def test_pointing_at_a_weight_lights_its_words(visit: Visit) -> None:
    card = visit.open().ask(QUERY).first
    visit.explained()
    weights = card.locator(".weight")
    expect(card.locator("mark.on")).to_have_count(0)
    weights.nth(1).hover()
    assert set(
        card.locator("mark.on").evaluate_all("all => all.map(one => one.dataset.number)")
    ) <= {"1"}
    visit.page.locator("#query").hover()
    expect(visit.page.locator(".hit.lit")).to_have_count(0)
    weights.nth(2).click()
    expect(weights.nth(2)).to_have_attribute("aria-pressed", "true")
    weights.nth(0).click()
    expect(weights.nth(2)).to_have_attribute("aria-pressed", "false")
    visit.page.locator("#query").hover()
    assert numbers_of(card.locator("mark.on")) == {0}


# --- one document


def test_a_document_and_its_map(visit: Visit, shared: Running) -> None:
    hits = visit.open().ask(QUERY)
    (answer,) = shared.search(QUERY)
    hit = next(one for one in answer["hits"] if one["title"])
    visit.page.locator(f".hit[data-id='{hit['id']}'] h2 a").click()
    article = visit.page.get_by_role("article", name=hit["title"])
    expect(article).to_be_visible()
    assert article.locator(".text").inner_text() == hit["text"]
    expect(article.locator(".id")).to_have_text(hit["id"])
    terms = dict(
        zip(
            article.locator("dt").all_inner_texts(),
            article.locator("dd").all_inner_texts(),
            strict=True,
        )
    )
    assert {name: json.loads(value) for name, value in terms.items()} == hit["metadata"]
    found = shared.ask("POST", "/map", {"id": hit["id"], "query": QUERY}).json
    dots = article.locator(".dot")
    expect(dots).to_have_count(len(found["pseudo_queries"]))
    expect(article.locator(".question")).to_have_count(1)
    expect(article).to_contain_text(f"{100 * found['variance']:.0f}% of the variance")
    # The points lie as the service says, at one scale.
    places = article.locator(".dot circle").evaluate_all(
        "all => all.map(one => [one.parentNode.dataset.number, one.cx.baseVal.value,"
        " one.cy.baseVal.value])"
    )
    at = {int(number): (x, -y) for number, x, y in places}
    given = [(one["point"]["x"], one["point"]["y"]) for one in found["pseudo_queries"]]
    scales = [
        (at[n][axis] - at[0][axis]) / (given[n][axis] - given[0][axis])
        for n in range(1, len(given))
        for axis in (0, 1)
    ]
    assert scales == pytest.approx([scales[0]] * len(scales), rel=1e-3)
    article.locator(".dot[data-number='1']").focus()
    assert numbers_of(article.locator("mark.on")) <= {1}
    article.get_by_role("link", name="Back to the results").click()
    expect(hits.first).to_be_visible()
    visit.page.go_back()
    expect(article).to_be_visible()
    visit.page.go_back()
    expect(hits.first).to_be_visible()


def test_a_document_without_a_question(visit: Visit, shared: Running) -> None:
    visit.open(document="id 3")
    article = visit.page.get_by_role("article")
    expect(article.locator(".dot")).to_have_count(4)
    expect(article.locator(".question")).to_have_count(0)
    expect(article.locator(".weight")).to_have_count(0)
    visit.page.keyboard.press("Escape")
    expect(visit.page.get_by_role("heading", name="Ask a question")).to_be_visible()


def test_letters_outside_the_basic_plane_are_counted_right(
    browser: Browser, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "letters", model=tiny_model)
    text = "😀 the king 🏰🏰 of the city 𝒜𝓁𝓅𝒽𝒶 and e\u0301 river 中文 song"
    index.add([Document("a", text)])
    with running(index) as service, visiting(browser, service.url) as visit:
        card = visit.open().ask("king").first
        visit.explained()
        assert card.locator(".text").inner_text() == text
        found = explained(service, "king", "a")["pseudo_queries"]
        for number, one in enumerate(found):
            owned = {text[span["start"] : span["end"]] for span in one["spans"]}
            marked = words(
                " ".join(card.locator(f"mark[data-number='{number}']").all_inner_texts())
            )
            plain = {word for word in words(" ".join(owned)) if word.isascii()}
            assert plain <= marked
        visit.check()
