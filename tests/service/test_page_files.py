"""The page's files: which there are, what a browser may do with them, and that they are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.service.page_files import FILES, MEDIA_TYPES, POLICY
from pseudoquery.service.recorder import SECURITY_HEADERS
from tests.support.serving import READ, Running, running

FOLDER = Path(__file__).parents[2] / "pseudoquery" / "service" / "page"
LARGEST = 40_000


@pytest.fixture(scope="module")
def service(template: Path, tiny_model: MultiVectorEncoder) -> Iterator[Running]:
    with running(Index.open(template, model=tiny_model), read_tokens=(READ,)) as started:
        yield started


def test_every_file_is_served_without_a_token(service: Running) -> None:
    assert set(FILES) == {path.name for path in FOLDER.iterdir()}
    for path in FOLDER.iterdir():
        reply = service.ask("GET", f"/page/{path.name}")
        assert (reply.status, reply.content) == (200, path.read_bytes())
        assert reply.headers["content-type"] == MEDIA_TYPES[path.suffix]
        assert len(reply.content) < LARGEST
    assert service.ask("GET", "/").content == (FOLDER / "index.html").read_bytes()


def test_the_policy_lets_the_page_run_its_own_files_alone(service: Running) -> None:
    reply = service.ask("GET", "/")
    expected = SECURITY_HEADERS | {"content-security-policy": POLICY}
    assert {name: reply.headers[name] for name in expected} == expected
    assert "unsafe" not in POLICY
    assert set(re.findall(r"(?:[a-z]+-src|[a-z-]+) ([^;]+)", POLICY)) == {
        "'none'",
        "'self'",
        "'script'",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/nothing.js",
        "/page/..%2fservice.py",
        "/page/..",
        "/page/%2e%2e/service.py",
        "/page/main.js/",
        "/page/Main.js",
        "/index.html",
        "/favicon.ico",
    ],
)
def test_nothing_else_is_served(service: Running, path: str) -> None:
    assert service.ask("GET", path, token=READ).status == 404


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        content = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]|@import|url\(", content), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", content)
    html = (FOLDER / "index.html").read_text()
    assert not re.search(
        r"<style|\bstyle=|\son\w+=|javascript:|<script(?! type=\"module\" src=)", html
    )


def test_every_module_and_element_that_is_named_is_there() -> None:
    html = (FOLDER / "index.html").read_text()
    ids = set(re.findall(r'id="([^"]+)"', html))
    for path in FOLDER.glob("*.js"):
        content = path.read_text()
        for name in re.findall(r'from "\./([^"]+)"', content):
            assert name in FILES, (path.name, name)
        assert set(re.findall(r'byId\("([^"]+)"\)', content)) <= ids, path.name
    for name in re.findall(r'(?:href|src)="page/([^"]+)"', html):
        assert name in FILES
