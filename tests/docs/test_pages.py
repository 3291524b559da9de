"""Links lead somewhere, files that are named are there, and the README stays short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pseudoquery.cli import cli

from .pages import DOCS, PAGES, README, ROOT, TAUGHT, anchors, blocks, name_of, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(
    r"`((?:benchmarks|deploy|docs|pseudoquery|recipes|results|tests)/[\w./-]+\.\w+)`"
)
GENERATED_ANCHOR = re.compile(r"pseudoquery\.[\w.]+")
"""Of a class or function, in a page that mkdocstrings fills; the build of the site checks it."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name}: there is no {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leads out of the repository"
        if anchor and not GENERATED_ANCHOR.fullmatch(anchor):
            assert anchor in anchors(target), f"{page.name}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_are_there(page: Path) -> None:
    if page.name in ("log.md", "CHANGELOG.md"):
        return  # they tell of the past
    missing = [name for name in NAMED_FILE.findall(prose(page)) if not (ROOT / name).exists()]
    assert missing == []


def test_an_anchor_that_is_not_there_is_noticed() -> None:
    assert "where-things-are" in anchors(README)
    assert "how-a-change-is-committed" in anchors(DOCS / "concepts" / "durability.md")
    assert "nothing-of-the-kind" not in anchors(README)


def test_every_page_is_on_the_site() -> None:
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} <= listed


def test_the_readme_leads_to_every_part_of_the_site() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(README.read_text())}
    for part in DOCS.iterdir():
        pages = {f"docs/{part.name}/{page.name}" for page in part.glob("*.md")}
        assert not pages or pages & linked, f"the README links no page of {part.name}"


def test_the_readme_is_short() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 200
    assert len(text.split()) <= 1600


def test_the_map_of_the_code_is_true() -> None:
    (tree,) = re.findall(
        r"^## Where things are\n.*?```\w*\n(.*?)```", README.read_text(), re.S | re.M
    )
    assert len(tree.splitlines()) <= 25
    package = ROOT / "pseudoquery"
    folders = {f"{folder.name}/" for folder in package.iterdir() if _holds_files(folder)}
    modules = {path.name for path in package.glob("*.py") if _defines_something(path)}
    assert set(re.findall(r"^  (\w+(?:/|\.py))(?= )", tree, re.MULTILINE)) == folders | modules


def _holds_files(folder: Path) -> bool:
    """Tell a folder of the package from one that Python or git has left behind."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return any("__pycache__" not in path.parts for path in inside)


def _defines_something(path: Path) -> bool:
    """Tell a module from one that only gives another one's names a second address."""
    body = ast.parse(path.read_text("utf-8")).body
    defines = any(isinstance(one, ast.ClassDef | ast.FunctionDef) for one in body)
    return defines and not path.name.startswith("__")


def test_every_command_is_shown() -> None:
    text = "\n".join(page.read_text("utf-8") for page in TAUGHT)
    shown = set(re.findall(r"(?:^|`)pseudoquery (\w+)", text, re.MULTILINE))
    assert set(cli.commands) - shown <= {"demo"}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    wanted = {
        target
        for page in PAGES
        for _, code in blocks(page, "bash", "sh")
        for target in re.findall(r"^make ([\w-]+)", code, re.MULTILINE)
    }
    assert {"demo", "test"} <= wanted
    assert [target for target in wanted if f"\n{target}:" not in makefile] == []
