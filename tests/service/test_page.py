"""The page in a real browser: ask, switch, see why, compare, open, add; by keyboard and phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Request, Route, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import PHONE, Visit, chromium, visiting
from tests.support.collection import WORDS
from tests.support.serving import READ, WRITE, Running, lines, running

QUERY = "who was the king of the city"
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
MANY = 400
"""Documents: more than the first step recalls."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def shared(template: Path, tiny_model: MultiVectorEncoder) -> Iterator[Running]:
    """A service whose index is not to be changed."""
    with running(Index.open(template, model=tiny_model)) as started:
        yield started


@pytest.fixture
def visit(browser: Browser, shared: Running) -> Iterator[Visit]:
    with visiting(browser, shared.url) as started:
        yield started
        assert started.failed_loads == []


def explained(service: Running, query: str, id_: str) -> Any:
    return service.ask("POST", "/explain", {"query": query, "id": id_}).json


def asked(request: Request) -> Any:
    """The body of a request to the service."""
    return json.loads(request.post_data or "")


def numbers(marks: Locator) -> set[int]:
    """Which pseudo queries these stretches of text belong to."""
    return set(marks.evaluate_all("all => all.map(one => Number(one.dataset.number))"))


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
    expect(visit.page.locator("#status")).to_contain_text("✓ Proven exact")
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
    assert [asked(one)["query"] for one in visit.sent("/search")] == ["king"]


def test_an_answer_that_comes_late_is_dropped(visit: Visit, shared: Running) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if asked(route.request)["query"] == "war":
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
    weights = card.get_by_role("button")
    expect(card.locator("mark.on")).to_have_count(0)
    weights.nth(1).hover()
    assert set(
        card.locator("mark.on").evaluate_all("all => all.map(one => one.dataset.number)")
    ) <= {"1"}
    visit.page.locator("#query").hover()
    expect(card.locator(".text.lit")).to_have_count(0)
    weights.nth(2).click()
    expect(weights.nth(2)).to_have_attribute("aria-pressed", "true")
    weights.nth(0).click()
    expect(weights.nth(2)).to_have_attribute("aria-pressed", "false")
    visit.page.locator("#query").hover()
    assert numbers(card.locator("mark.on")) == {0}


# --- switches


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
        expect(status).to_contain_text("Not proven")
        visit.page.get_by_role("button", name="Prove it").click()
        expect(status).to_contain_text("✓ Proven exact")
        expect(visit.page.get_by_role("switch", name="Exact")).to_be_checked()
        exact = service.search(query, exact=True)[0]["hits"]
        assert visit.ids(visit.page.locator(".hit")) == [hit["id"] for hit in exact]
        visit.check()


def test_side_by_side(visit: Visit, shared: Running) -> None:
    visit.open().ask(QUERY)
    for hybrid in (False, True):
        visit.page.get_by_role("switch", name="Hybrid").set_checked(hybrid)
        visit.page.get_by_role("switch", name="Compare").check()
        name = "Pseudo queries + BM25" if hybrid else "Pseudo queries"
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
        said = f"ranked {ours.index(here) + 1} by" if here in ours else "not in the first"
        expect(row.locator(".moved")).to_contain_text(said)
        row.hover()
        assert set(visit.ids(visit.page.locator("li.same"))) == {here}
    expect(visit.page.get_by_role("region", name="One vector")).to_contain_text(
        "the mean of its pseudo queries"
    )


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
    assert numbers(article.locator("mark.on")) <= {1}
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


# --- adding documents


def test_upload_with_progress(served: Index, browser: Browser, tmp_path: Path) -> None:
    blank = " " * 4000  # many bytes, and little to encode
    records: list[Any] = [{"id": f"n{n}", "text": f"number {n}{blank}king"} for n in range(100)]
    (tmp_path / "many.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(*records))
    (tmp_path / "notes.txt").write_text("The moon is made of green cheese.")
    (tmp_path / "page.MD").write_text("# Castle\n\nA castle <b>garden</b> at the bridge.")
    with running(served) as service, visiting(browser, service.url) as visit:
        visit.open()
        page = visit.page
        expect(page.get_by_role("button", name="30 documents")).to_be_visible()
        page.get_by_role("button", name="Add documents").click()
        page.evaluate(
            """() => {
                window.seen = [];
                const note = () => document.querySelectorAll("#transfers progress").forEach(
                    (bar) => window.seen.push(bar.hasAttribute("value") ? bar.value : null));
                new MutationObserver(note).observe(
                    document.getElementById("transfers"), {subtree: true, childList: true,
                    attributes: true, characterData: true});
            }"""
        )
        page.locator("#files").set_input_files(tmp_path / "many.jsonl")
        row = page.locator("#transfers li").filter(has_text="many.jsonl")
        expect(row).to_have_class("done")
        expect(row.locator(".said")).to_have_text("100 added.")
        sent = visit.sent("first_line=")
        firsts = [int(request.url.partition("first_line=")[2]) for request in sent]
        assert len(firsts) >= 3
        assert firsts == sorted(set(firsts))
        assert firsts[0] == 1
        seen = page.evaluate("window.seen")
        known = [one for one in seen if one is not None]
        assert None in seen
        assert known == sorted(known)
        assert len([one for one in set(known) if 0 < one < 1]) >= 2
        page.locator("#files").set_input_files([tmp_path / "notes.txt", tmp_path / "page.MD"])
        expect(page.locator("#transfers li.done")).to_have_count(3)
        expect(
            page.get_by_role("button", name="132 documents", include_hidden=True)
        ).to_be_attached()
        page.get_by_role("button", name="Close").click()
        assert visit.ask("moon green cheese").count() == 10
        visit.check()
    assert len(served) == 132
    for name in ("notes.txt", "page.MD"):
        text = (tmp_path / name).read_text()
        assert served.get(name) == Document(name, text, metadata={"path": name})
    assert served.get("n99") == Document("n99", records[99]["text"])


def test_uploads_that_are_refused(served: Index, browser: Browser, tmp_path: Path) -> None:
    good = [{"id": f"n{n}", "text": f"river{' ' * 2000}city"} for n in range(150)]
    files = {
        "bad.jsonl": (
            lines(*good, {"id": "x"}),
            'Line 151: "text" is missing; ',
        ),
        "latin.txt": ("käse".encode("latin-1"), "This file is not UTF-8 text"),
        "large.txt": (b"x" * 300_000, "The body is larger than 250,000 bytes"),
        "long.md": (b"long " * 5000, "at most 20,000 are allowed"),
        "picture.png": (b"x", "Only .txt, .md, .jsonl and .ndjson files"),
        "empty.jsonl": (b"", "No documents in it."),
    }
    limits = {"body_bytes": 250_000, "document_characters": 20_000}
    with running(served, **limits) as service, visiting(browser, service.url) as visit:
        visit.open().page.get_by_role("button", name="Add documents").click()
        for name, (content, said) in files.items():
            (tmp_path / name).write_bytes(content)
            visit.page.locator("#files").set_input_files(tmp_path / name)
            row = visit.page.locator("#transfers li").filter(has_text=name)
            expect(row).to_have_class("done" if name == "empty.jsonl" else "failed")
            expect(row.locator(".said")).to_contain_text(said)
        stored = visit.page.locator("#transfers li").filter(has_text="bad.jsonl").locator(".said")
        upto = re.search(r"documents up to line (\d+) have been stored", stored.inner_text())
        assert upto
        visit.check(failed_loads=3)
    assert served.get(f"n{int(upto[1]) - 1}")
    assert len(served) == 30 + int(upto[1])


def test_files_can_be_dropped_anywhere(served: Index, browser: Browser) -> None:
    with running(served) as service, visiting(browser, service.url) as visit:
        visit.open()
        dropped = visit.page.evaluate_handle(
            """() => { const data = new DataTransfer();
                data.items.add(new File(["moon and star"], "dropped.txt")); return data; }"""
        )
        visit.page.dispatch_event("main", "drop", {"dataTransfer": dropped})
        expect(visit.page.get_by_role("dialog")).to_contain_text("1 added.")
    assert served.get("dropped.txt")


# --- states


def test_an_index_without_documents(
    browser: Browser, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "empty", model=tiny_model)
    with running(index) as service, visiting(browser, service.url) as visit:
        visit.open()
        expect(visit.page.get_by_role("heading", name="has no documents yet")).to_be_visible()
        visit.page.locator(".notice").get_by_role("button", name="Add documents").click()
        expect(visit.page.get_by_role("dialog", name="Add documents")).to_be_visible()
        visit.page.keyboard.press("Escape")
        visit.page.locator("#query").fill("king")
        expect(visit.page.get_by_role("heading", name="Nothing found")).to_be_visible()
        visit.page.get_by_role("switch", name="Compare").check()
        expect(visit.page.get_by_text("Nothing found this way.")).to_have_count(3)
        visit.check()


def test_while_an_answer_is_awaited_the_page_says_so(visit: Visit) -> None:
    held: list[Route] = []
    visit.page.route("**/search", lambda route: held.append(route))
    visit.open()
    with visit.page.expect_request("**/search"):
        visit.page.locator("#query").fill("king")
    expect(visit.page.locator("main")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(visit.page.locator("main")).not_to_have_attribute("aria-busy", "true")
    assert visit.hits("king").count() == 10


def test_a_service_that_is_gone_and_comes_back(
    browser: Browser, template: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.open(template, model=tiny_model)
    with running(index) as service, visiting(browser, service.url) as visit:
        visit.open().ask("king")
        visit.page.context.set_offline(True)
        visit.page.locator("#query").fill("river")
        expect(visit.alert()).to_contain_text("The service does not answer. Is it still running?")
        expect(visit.page.locator(".hit")).to_have_count(0)
        visit.page.context.set_offline(False)
        visit.page.get_by_role("button", name="Try again").click()
        assert visit.hits("river").count() == 10
        expect(visit.alert()).to_be_empty()
        visit.check(failed_loads=None)


def test_a_service_that_has_ended(served: Index, browser: Browser) -> None:
    with running(served) as service:
        context = browser.new_context()
        visit = Visit(context, service.url).open()
        visit.ask("king")
    visit.page.locator("#query").fill("river")
    expect(visit.alert()).to_contain_text("The service does not answer.")
    visit.check(failed_loads=None)
    context.close()


def test_what_the_service_refuses_is_told(browser: Browser, shared: Running) -> None:
    with visiting(browser, shared.url) as visit:
        visit.open(q="x" * 4001)
        expect(visit.alert()).to_contain_text("A query has 4,001 characters; at most 4,000 are")
        visit.ask("king")
        expect(visit.alert()).to_be_empty()
        visit.open(document="no such <document>")
        expect(visit.alert()).to_contain_text("There is no document with the id 'no such <docume")
        visit.check(failed_loads=2)


def test_tokens(served: Index, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("moon")
    tokens = {"read_tokens": (READ,), "write_tokens": (WRITE,)}
    with running(served, **tokens) as service, visiting(browser, service.url) as visit:
        page = visit.open(q="king").page
        dialog = page.get_by_role("dialog", name="This service needs a token")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Token").fill("wrong" * 4)
        dialog.get_by_role("button", name="Use this token").click()
        expect(dialog).to_contain_text("Send a token that the service knows")
        dialog.get_by_label("Token").fill(READ)
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        assert visit.hits("king").count() == 10
        assert page.evaluate("JSON.stringify(localStorage)") == "{}"
        assert page.evaluate("Object.values(sessionStorage)") == [READ]
        assert READ not in page.url
        page.reload()
        assert visit.hits("king").count() == 10
        expect(dialog).to_be_hidden()
        page.get_by_role("button", name="Add documents").click()
        page.locator("#files").set_input_files(tmp_path / "notes.txt")
        row = page.locator("#transfers li").first
        expect(row).to_contain_text("This token may read; to change documents takes a write token.")
        row.get_by_role("button", name="Use another token").click()
        dialog.get_by_label("Token").fill(WRITE)
        page.keyboard.press("Enter")
        page.locator("#files").set_input_files(tmp_path / "notes.txt")
        expect(page.locator("#transfers li").first).to_contain_text("1 added.")
        visit.check(failed_loads=None)
    assert served.get("notes.txt")


def test_who_gives_no_token_is_told_what_is_missing(served: Index, browser: Browser) -> None:
    with running(served, read_tokens=(READ,)) as service, visiting(browser, service.url) as visit:
        visit.open()
        visit.page.get_by_role("button", name="Cancel").click()
        expect(visit.alert()).to_contain_text("Send a token that the service knows")
        visit.page.get_by_role("button", name="Try again").click()
        expect(visit.page.get_by_role("dialog")).to_be_visible()


def test_facts(visit: Visit, shared: Running) -> None:
    visit.open().page.get_by_role("button", name="30 documents").click()
    facts = shared.ask("GET", "/info").json["index"]
    shown = visit.page.get_by_role("dialog", name="This index")
    expect(shown).to_contain_text(f"{facts['vectors']} (up to 4 a document)")
    expect(shown).to_contain_text(f"{facts['dimension']} dimensions")
    expect(shown).to_contain_text(facts["model"])
    visit.page.keyboard.press("Escape")
    expect(shown).to_be_hidden()


# --- by keyboard, on a phone, in the dark


def focused(visit: Visit) -> str:
    return str(
        visit.page.evaluate(
            "document.activeElement.id || document.activeElement.textContent.trim()"
        )
    )


def test_by_keyboard_alone(visit: Visit, shared: Running) -> None:
    keyboard = visit.open().page.keyboard
    assert focused(visit) == "query"
    keyboard.type(QUERY)
    hits = visit.hits(QUERY)
    names = [hit.locator("h2 a").inner_text() for hit in hits.all()]
    keyboard.press("ArrowDown")
    assert focused(visit) == names[0]
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    keyboard.press("ArrowUp")
    assert focused(visit) == names[1]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert visit.page.evaluate(outline) == "solid"
    keyboard.press("Enter")
    expect(visit.page.get_by_role("article", name=names[1])).to_be_visible()
    assert visit.page.evaluate("document.activeElement.id") == "document"
    keyboard.press("Tab")
    assert focused(visit) == "← Back to the results"
    keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.classList.contains('dot')")
    keyboard.press("Escape")
    expect(hits.first).to_be_visible()
    assert focused(visit) == names[1]
    keyboard.press("/")
    assert focused(visit) == "query"
    for name in ("hybrid", "exact", "compare"):
        keyboard.press("Tab")
        assert focused(visit) == name
    keyboard.press("Space")
    expect(visit.page.locator(".comparison")).to_be_visible()
    keyboard.press("Shift+Tab")
    keyboard.press("Shift+Tab")
    keyboard.press("Space")
    expect(visit.page.locator("#hybrid")).to_be_checked()
    expect(visit.page.get_by_role("region", name="Pseudo queries + BM25")).to_be_visible()


def test_every_control_has_a_name(visit: Visit) -> None:
    visit.open().ask(QUERY)
    names = visit.page.locator("a, button, input, select").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label')"
        " || [...(one.labels ?? [])].map(label => label.textContent).join() || one.textContent)"
    )
    assert len(names) > 50
    assert all(name.strip() for name in names)


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, served: Index) -> None:
    served.add([Document("x" * 300, f"king {'w' * 400} city", "T" * 200, {"k" * 90: "v" * 300})])
    with running(served) as service, visiting(browser, service.url, **PHONE) as visit:
        visit.open()
        for state in (
            {},
            {"q": QUERY},
            {"q": f"king {'w' * 60}", "shown": 1000},
            {"q": QUERY, "compare": ""},
            {"q": QUERY, "document": "x" * 300},
            {"document": "id 3"},
        ):
            visit.move(**state)
            expect(visit.page.locator("main[aria-busy]")).to_have_count(0)
            if "document" in state:
                expect(visit.page.locator(".map")).to_be_visible()
            elif "q" in state:
                expect(visit.page.locator("#results li").first).to_be_visible()
            wide = visit.page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
            assert wide <= 0, state
        for name in ("31 documents", "Add documents"):
            visit.page.get_by_role("button", name=name).tap()
            box = visit.page.get_by_role("dialog").bounding_box()
            assert box
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
            visit.page.get_by_role("button", name="Close").tap()
        visit.page.get_by_role("button", name=re.compile("^Colours")).tap()
        visit.check()


CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const over = (colours) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const luminance = (rgb) => rgb.map((one) => one / 255).map(
        (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4
    ).reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || !element.checkVisibility()) continue;
        if (element.closest("svg, option, .hidden, .skip, script, noscript")) continue;
        const behind = [];
        for (let one = element; one; one = one.parentElement) {
            behind.unshift(getComputedStyle(one).backgroundColor);
        }
        const [text, ground] = [over([...behind, getComputedStyle(element).color]), over(behind)]
            .map(luminance);
        const contrast = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        found.push([contrast, texts.currentNode.textContent.trim().slice(0, 40)]);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Browser, shared: Running, scheme: Any) -> None:
    grounds = {}
    with visiting(browser, shared.url, color_scheme=scheme) as visit:
        for state in ({}, {"q": QUERY}, {"q": QUERY, "compare": ""}, {"q": "x" * 4001}):
            visit.open(**state)
            expect(visit.page.locator("#results > *, #alert > *").first).to_be_visible()
            visit.explained()
            contrasts = visit.page.evaluate(CONTRASTS)
            assert len(contrasts) >= 10
            assert [one for one in contrasts if one[0] < 4.5] == [], state
        toggle = visit.page.get_by_role("button", name=re.compile("^Colours"))
        background = "getComputedStyle(document.body).backgroundColor"
        for name in ("As the system", "Light", "Dark"):
            expect(toggle).to_have_attribute("aria-label", f"Colours: {name}")
            grounds[name] = visit.page.evaluate(background)
            toggle.click()
    assert grounds["Light"] != grounds["Dark"]
    assert grounds["As the system"] == grounds[scheme.capitalize()]
