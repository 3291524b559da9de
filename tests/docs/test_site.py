"""The site builds without a warning and without the network, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .pages import DOCS, ROOT

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself when it shows a page; a link that is clicked is not."""
ELSEWHERE = re.compile(r"(?:https?:)?//")


class Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = LOADED.get(tag)
        self.addresses += [value for name, value in attrs if name == wanted and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a proxy that is not there keeps the network away."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()
    assert (site / "search" / "search_index.js").is_file()


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text("utf-8"))
        assert [one for one in parser.addresses if ELSEWHERE.match(one)] == [], page.name
    for sheet in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", sheet.read_text("utf-8"))
        assert [one for one in addresses if ELSEWHERE.match(one)] == [], sheet.name


def test_something_loaded_from_another_host_is_noticed() -> None:
    parser = Loads()
    parser.feed(
        '<a href="https://a.example"></a><script src="//b.example/x.js"></script><img src="c.png">'
    )
    assert parser.addresses == ["//b.example/x.js", "c.png"]
    assert ELSEWHERE.match(parser.addresses[0])
    assert not ELSEWHERE.match(parser.addresses[1])
