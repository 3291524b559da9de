"""The words that match, in a real browser: marked in the text, and tied to the question's words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import PHONE, QUERY, Visit, visiting
from tests.support.serving import Running, running

QUESTION = "king moon river song ship fire"
"""Each of its words stands once in the long text."""
FILLER = "A dog ate the bread. " * 40
LONG = "The old king was in the city. " + "".join(
    f"{FILLER}Then a {word} came. " for word in QUESTION.split()[1:]
)


def find_matches(similarities: dict[str, float]) -> list[dict[str, Any]]:
    """Match each word of the question with the same word of the long text."""
    return [
        {
            "word": {"start": QUESTION.index(word), "end": QUESTION.index(word) + len(word)},
            "similarity": similarity,
            "spans": [{"start": LONG.index(word), "end": LONG.index(word) + len(word)}],
        }
        for word, similarity in similarities.items()
    ]


SIMILARITIES = dict(zip(QUESTION.split(), (0.75, 0.66, 0.6, 0.55, 0.5, 0.45), strict=True))


def explain_with(visit: Visit, service: Running, **changes: Any) -> None:
    """Let the service explain the long document otherwise."""
    body = {"query": QUESTION, "id": "long"}
    explanation = {**service.ask("POST", "/explain", body).json, **changes}
    visit.page.route("**/explain", lambda route: route.fulfill(json=explanation))


@pytest.fixture(scope="module")
def long(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: MultiVectorEncoder
) -> Iterator[Running]:
    """A service of one long document."""
    index = Index.create(tmp_path_factory.mktemp("long") / "index", model=tiny_model)
    index.add([Document("long", LONG, "A tale")])
    with running(index) as started:
        yield started


@pytest.fixture
def reader(browser: Browser, long: Running) -> Iterator[Visit]:
    """The page of the long document, whose matches are known."""
    with visiting(browser, long.url, viewport={"width": 1200, "height": 700}) as visit:
        passage = {"start": 0, "end": 29}
        explain_with(visit, long, matches=find_matches(SIMILARITIES), passage=passage)
        yield visit


def texts(elements: Locator) -> list[str]:
    return [str(text) for text in elements.evaluate_all("all => all.map(one => one.textContent)")]


def test_matches_are_those_of_the_service(visit: Visit, shared: Running) -> None:
    hits = visit.open().ask(f"{QUERY}?")
    visit.explained()
    for card in hits.all():
        body = {"query": f"{QUERY}?", "id": card.get_attribute("data-id")}
        explanation = shared.ask("POST", "/explain", body).json
        text = explanation["document"]["text"]
        # "who was the of the" and "?" tell nothing, though the service matches them too.
        king, city = (
            match
            for match in explanation["matches"]
            if QUERY[match["word"]["start"] : match["word"]["end"]] in ("king", "city")
        )
        assert min(king["similarity"], city["similarity"]) > 0.4
        spans = {(span["start"], span["end"]) for match in (king, city) for span in match["spans"]}
        assert texts(card.locator(".text .match")) == [text[slice(*span)] for span in sorted(spans)]
        assert card.locator(".word").count() == 2
        expect(card.locator("mark").first).to_be_visible()  # the colours are still there
        assert texts(card.locator(".text")) == [text]


def test_weak_matches_are_not_marked_and_strong_ones_most(reader: Visit, long: Running) -> None:
    weak = {**SIMILARITIES, "song": 0.39, "ship": 0.2}
    explain_with(reader, long, matches=find_matches(weak))
    card = reader.open().ask(QUESTION)
    reader.explained()
    assert texts(card.locator(".text .match")) == ["king", "moon", "river", "fire"]
    expect(card.locator(".missing")).to_have_text("no close match: song, ship")
    lines = card.locator(".text .match").evaluate_all(
        "all => all.map(one => parseFloat(getComputedStyle(one).textDecorationThickness))"
    )
    assert lines[0] == lines[1] > lines[2] > lines[3] > 0


def test_words_are_not_matched_with_punctuation(reader: Visit, long: Running) -> None:
    king, moon = find_matches({"king": 0.7, "moon": 0.7})
    stop = {"start": LONG.index("."), "end": LONG.index(".") + 1}
    matches = [{**king, "spans": [stop]}, {**moon, "spans": [stop, *moon["spans"]]}]
    explain_with(reader, long, matches=matches)
    card = reader.open().ask(QUESTION)
    reader.explained()
    expect(card.locator(".missing")).to_have_text("no close match: king")
    expect(card.locator(".word")).to_have_text(["moon"])
    assert texts(card.locator(".text .match")) == ["moon"]


def test_of_very_many_words_the_best_are_shown(reader: Visit, long: Running) -> None:
    weak, strong = find_matches({"king": 0.1, "moon": 0.5})
    word = {"start": 0, "end": 4}
    more = [{**weak, "word": {"start": 0, "end": end}} for end in range(1, len(QUESTION))]
    matches = [{**strong, "word": word, "similarity": 0.5 + n / 1000} for n in range(30)] + more
    explain_with(reader, long, matches=matches)
    card = reader.open().ask(QUESTION)
    reader.explained()
    expect(card.locator(".word")).to_have_count(20)
    expect(card.locator(".word").first).to_have_attribute("data-words", "10")
    expect(card.locator(".missing")).to_contain_text(f", and {len(more) - 20} more")


def test_a_question_of_common_words_alone_is_matched_too(visit: Visit) -> None:
    card = visit.open().ask("who was it").first
    visit.explained()
    expect(card.locator(".word, .missing").first).to_be_visible()


def test_pointing_at_a_word_lights_its_matches_and_back(reader: Visit) -> None:
    card = reader.open().ask(QUESTION)
    reader.explained()
    chips, lit = card.locator(".word"), card.locator(".text .match.on")
    expect(lit).to_have_count(0)
    chips.nth(1).hover()
    expect(lit).to_have_text(["moon"])
    expect(card).not_to_have_class("hit lit")  # the pseudo queries keep their colours
    reader.page.locator("#query").hover()
    expect(lit).to_have_count(0)
    card.locator(".text .match", has_text="river").hover()
    expect(card.locator(".word.on")).to_have_text(["river"])
    expect(lit).to_have_text(["river"])
    reader.page.locator("#query").hover()
    expect(card.locator(".on")).to_have_count(0)
    card.locator("h2 a").focus()
    reader.page.keyboard.press("Tab")
    expect(lit).to_have_text(["king"])
    reader.page.keyboard.press("Tab")
    expect(lit).to_have_text(["moon"])
    expect(chips.nth(1)).to_have_accessible_name("moon matches moon")
    reader.page.keyboard.press("Enter")
    expect(chips.nth(1)).to_have_attribute("aria-pressed", "true")
    card.locator(".weight").first.hover()  # points elsewhere, and returns to what is pinned
    expect(lit).to_have_count(0)
    reader.page.locator("#query").hover()
    expect(lit).to_have_text(["moon"])
    chips.nth(1).click()
    reader.page.locator("#query").focus()
    reader.page.locator("#query").hover()
    expect(lit).to_have_count(0)


def test_the_excerpt_shows_matches_that_stand_elsewhere(reader: Visit) -> None:
    card = reader.open().ask(QUESTION)
    reader.explained()
    # Four beside the passage, the best; "fire" matches least.
    assert texts(card.locator(".text .match")) == QUESTION.split()[:-1]
    shown = card.locator(".text").inner_text()
    assert shown.startswith("The old king")
    assert shown.count(" … ") == 4
    assert len(shown) < len(LONG) / 2
    card.locator(".word", has_text="fire").click()
    lit = card.locator(".text .match.on")
    expect(lit).to_have_text(["fire"])
    expect(lit).to_be_in_viewport()
    assert card.locator(".text").inner_text() == LONG.strip()
    expect(card.locator(".word", has_text="fire")).to_be_focused()


def test_a_match_in_the_title_lights_the_title(reader: Visit, long: Running) -> None:
    (moon,) = find_matches({"moon": 0.7})
    explain_with(reader, long, matches=[{**moon, "spans": []}])
    card = reader.open().ask(QUESTION)
    reader.explained()
    expect(card.locator(".word")).to_have_text("moon→(in the title)")
    card.locator(".word").hover()
    expect(card.locator("h2 a.on")).to_have_count(1)


def test_a_whole_document_and_its_best_sentence(reader: Visit, long: Running) -> None:
    last = {"start": LONG.index("Then a fire"), "end": len(LONG) - 1}
    explain_with(reader, long, matches=find_matches(SIMILARITIES), passage=last)
    reader.open(q=QUESTION, document="long")
    article = reader.page.get_by_role("article", name="A tale")
    expect(article).to_be_visible()
    assert texts(article.locator(".text .match")) == QUESTION.split()
    sentence = article.locator(".text .passage")
    assert "".join(texts(sentence)) == "Then a fire came."
    expect(sentence.last).not_to_be_in_viewport()
    article.get_by_role("button", name="Go to the best sentence").click()
    expect(sentence.last).to_be_in_viewport()
    article.get_by_role("button", name="ship matches ship").click()
    expect(article.locator(".text .match.on")).to_have_text(["ship"])
    expect(article.locator(".text .match.on")).to_be_in_viewport()


def test_by_touch(browser: Browser, long: Running) -> None:
    with visiting(browser, long.url, **PHONE) as visit:
        explain_with(visit, long, matches=find_matches(SIMILARITIES))
        card = visit.open().ask(QUESTION)
        visit.explained()
        card.locator(".word").nth(2).tap()
        expect(card.locator(".text .match.on")).to_have_text(["river"])
        card.locator(".text .match", has_text="king").tap()
        expect(card.locator(".word.on")).to_have_text(["king"])
        assert visit.page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0


def test_an_index_without_tokens(
    browser: Browser, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model, tokens="none")
    index.add([Document("a", "The king was in the city."), Document("b", "A dog ate the bread.")])
    with running(index) as service, visiting(browser, service.url) as visit:
        visit.open().ask("king")
        visit.explained()
        expect(visit.page.locator(".words, .match")).to_have_count(0)
        expect(visit.page.locator("mark").first).to_be_visible()
        expect(visit.page.locator("#status")).to_contain_text("no other document scores higher")
        visit.page.get_by_role("switch", name="Compare").check()
        first = visit.page.get_by_role("region", name="Pseudo queries", exact=True)
        expect(first).to_be_visible()
        visit.check()
