"""The page by keyboard, on a phone and in the dark, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import PHONE, QUERY, Visit, visiting
from tests.support.serving import Running, running


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
    for part in ("word", "word", "dot"):
        keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.classList[0]") == part
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
    expect(visit.page.get_by_role("region", name="Pseudo queries + tokens + BM25")).to_be_visible()


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
        for name in ("System", "Light", "Dark"):
            expect(toggle).to_have_attribute("aria-label", f"Colours: {name}")
            grounds[name] = visit.page.evaluate(background)
            toggle.click()
    assert grounds["Light"] != grounds["Dark"]
    assert grounds["System"] == grounds[scheme.capitalize()]
