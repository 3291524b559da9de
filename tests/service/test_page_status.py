"""What the page says is proven, in a real browser: a note about scores, not a seal of relevance."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser import QUERY, Visit
from tests.support.serving import Running

HIGHEST = "Proven: no other document scores higher."
BEST = "The 100 best documents by pseudo queries"
UNION = "100 documents, the best by pseudo queries"


@pytest.mark.parametrize(
    ("ranked_by", "certified", "proven", "note"),
    [
        ("tokens", True, True, HIGHEST),
        ("vectors", True, True, HIGHEST),
        ("tokens and words", True, True, "Proven: both rankings, which are combined here, are"),
        ("vectors and words", True, True, "Proven: both rankings, which are combined here, are"),
        ("tokens", False, True, f"{BEST} (proven), ordered by their words."),
        ("tokens", False, False, f"{BEST} (not proven), ordered by their words."),
        ("tokens and words", False, True, f"{UNION} (proven) and by BM25, ordered by both."),
        ("tokens and words", False, False, f"{UNION} (not proven) and by BM25, ordered by both."),
        ("vectors", False, False, "Not proven: another document might score higher."),
        ("vectors and words", False, False, "Not proven: another document might score higher."),
    ],
)
def test_the_note_says_what_is_proven(
    visit: Visit, shared: Running, ranked_by: str, certified: bool, proven: bool, note: str
) -> None:
    (answer,) = shared.search(QUERY)
    answer |= {"ranked_by": ranked_by, "certified": certified, "candidates_proven": proven}
    answers = {"answers": [{**answer, "candidates": 100}]}
    visit.page.route("**/search", lambda route: route.fulfill(json=answers))
    visit.open().ask(QUERY)
    summary = visit.page.locator("#status summary")
    expect(summary).to_contain_text(note)
    colours = [
        element.evaluate("one => getComputedStyle(one).color")
        for element in (summary, visit.page.locator("#status"), visit.page.locator(".text").first)
    ]
    assert len(set(colours)) == 1  # as grey as any other small print
    summary.click()
    details = visit.page.locator("#status details")
    expect(details.get_by_text("This is about scores only.")).to_be_visible()
    expect(details.get_by_role("button")).to_have_count(0 if certified else 1)
