"""Adding documents on the page, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import visiting
from tests.support.serving import lines, running


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
        "empty.jsonl": (b"", "The file has no documents."),
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
