"""Debian's Chromium, without a window, and a watch on everything that it must not do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

PATIENCE = 30_000
"""Milliseconds to wait for what must come: the machine that runs this may be busy."""
FLAGS = ["--no-sandbox", "--disable-gpu"]
"""Its sandbox does not work for root, nor in most containers; a GPU would only be imitated."""
QUERY = "who was the king of the city"
"""A question that many documents of the collection match."""
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
}

expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; without one the tests are skipped, unless CHROMIUM=required."""
    program = shutil.which("chromium")
    if not program:
        message = "Debian's Chromium is missing; install it with: apt-get install chromium"
        if os.environ.get("CHROMIUM") == "required":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page of a service in a fresh browser profile, and all that went wrong there."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.requests: list[Request] = []
        self.outside: list[str] = []
        self.wrong: list[str] = []
        self.failed_loads: list[str] = []
        self.page.on("request", self._requested)
        self.page.on("console", self._printed)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._asked)
        self.page.on("popup", lambda popup: self.wrong.append(f"a window: {popup.url}"))

    def open(self, **state: Any) -> Visit:
        """Go to the page in a state, such as open(q="king", compare="")."""
        self.page.goto("about:blank")  # else a change after the # alone loads nothing
        self.page.goto(f"{self.url}/{_fragment(state)}")
        return self

    def move(self, **state: Any) -> None:
        """Go to another state, as the browser's Back does: without loading the page again."""
        self.page.goto(f"{self.url}/{_fragment(state)}")

    def ask(self, query: str) -> Locator:
        """Type a question, and wait for its hits."""
        self.page.locator("#query").fill(query)
        return self.hits(query)

    def hits(self, query: str) -> Locator:
        """Return the hits for a question."""
        expect(self.page).to_have_title(f"{query} – pseudoquery")
        expect(self.page.locator("main[aria-busy]")).to_have_count(0)
        return self.page.locator(".hit")

    def explained(self) -> None:
        """Wait until all hits in sight are explained."""
        expect(self.page.locator("[aria-busy]")).to_have_count(0)

    def ids(self, rows: Locator) -> list[str | None]:
        """The documents' ids, in order."""
        return [row.get_attribute("data-id") for row in rows.all()]

    def alert(self) -> Locator:
        return self.page.locator("#alert")

    def check(self, failed_loads: int | None = 0) -> None:
        """Nothing went wrong, but for answers that were refused as they should be."""
        assert self.wrong == []
        assert self.outside == []
        if failed_loads is not None:
            assert len(self.failed_loads) == failed_loads, self.failed_loads

    def sent(self, part: str) -> list[Request]:
        """The requests so far whose address has this part."""
        return [request for request in self.requests if part in request.url]

    def _requested(self, request: Request) -> None:
        self.requests.append(request)
        if not request.url.startswith((self.url, "about:", "data:")):
            self.outside.append(request.url)

    def _printed(self, message: ConsoleMessage) -> None:
        if message.text.startswith("Failed to load resource"):
            self.failed_loads.append(message.text)
        elif message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, dialog: Any) -> None:
        self.wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


def _fragment(state: dict[str, Any]) -> str:
    return "#" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in state.items())


@contextmanager
def visiting(browser: Browser, url: str, **how: Any) -> Iterator[Visit]:
    """Visit a service with a profile of its own; what goes wrong meanwhile is an error."""
    # So high that all hits are in sight, and so explained.
    usual = {"viewport": {"width": 1200, "height": 3000}, "reduced_motion": "reduce"}
    context = browser.new_context(**{**usual, **how})
    visit = Visit(context, url)
    yield visit
    assert (visit.wrong, visit.outside) == ([], [])
    context.close()


def numbers_of(marks: Locator) -> set[int]:
    """Which pseudo queries these stretches of text belong to."""
    return set(marks.evaluate_all("all => all.map(mark => Number(mark.dataset.number))"))
