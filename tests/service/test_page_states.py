"""What the page says in a real browser: no documents, no answer, no token; and facts."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Route, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from tests.support.browser import Visit, visiting
from tests.support.serving import READ, WRITE, Running, running


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
        expect(visit.page.get_by_role("heading", name="No documents found")).to_be_visible()
        visit.page.get_by_role("switch", name="Compare").check()
        expect(visit.page.get_by_text("No documents found.")).to_have_count(3)
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
        expect(row).to_contain_text(
            "This token may only read; send a write token to change documents."
        )
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
    expect(shown).to_contain_text(f"{facts['vectors']} (up to 4 per document)")
    expect(shown).to_contain_text(f"{facts['dimension']} dimensions")
    expect(shown).to_contain_text(f"{facts['tokens_stored']:,} as signs")
    expect(shown).to_contain_text(facts["model"])
    visit.page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
