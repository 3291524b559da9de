"""The pages, and how to take them apart."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("deploy/*.md")])
TAUGHT = [
    README,
    DOCS / "index.md",
    *sorted(DOCS.glob("get-started/*.md")),
    *sorted(DOCS.glob("guides/*.md")),
]
"""Pages whose commands and programs a reader types, one after the other."""

_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    """Name a page for a test's id."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """List the code blocks in these languages, in order: (language, code)."""
    return [
        (language, code)
        for _, language, code in _BLOCK.findall(page.read_text("utf-8"))
        if language in languages
    ]


def prose(page: Path) -> str:
    """Return what is written outside of code blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Name the headings of a page as GitHub does, and as the site does."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def rows(page: Path) -> list[list[str]]:
    """List the cells of all tables of a page."""
    lines = [one for one in page.read_text("utf-8").splitlines() if one.startswith("| ")]
    return [[cell.strip() for cell in one.strip("|").split(" | ")] for one in lines]
