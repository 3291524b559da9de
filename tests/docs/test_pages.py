"""The pages in docs/ are true: links lead somewhere, examples work, nothing is left out."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sqlite3
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pseudoquery.cli import cli
from pseudoquery.index import Index
from pseudoquery.recipe import Config, read_config
from pseudoquery.service import create_app
from pseudoquery.service_settings import ServiceSettings
from pseudoquery.service_watch import Watch
from pseudoquery.store import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("deploy/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`((?:benchmarks|docs|pseudoquery|tests)/[\w./-]+\.\w+)`")


def text_of(page: Path) -> str:
    """What is written outside of code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Name the headings of a page as GitHub does."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = [one for one in (DOCS / page).read_text().splitlines() if one.startswith("| ")]
    return [[cell.strip() for cell in one.strip("|").split(" | ")] for one in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: there is no {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leads out of the repository"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    missing = [name for name in NAMED_FILE.findall(text_of(page)) if not (ROOT / name).exists()]
    assert missing == []


def test_an_anchor_that_is_not_there_is_noticed() -> None:
    assert "what-it-measures" in anchors(ROOT / "README.md")
    assert "how-a-change-is-committed" in anchors(DOCS / "index-format.md")
    assert "nothing-of-the-kind" not in anchors(ROOT / "README.md")


def test_the_readme_leads_to_every_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_commands_is_true() -> None:
    written: str = script("commands.py").page()
    assert written == (DOCS / "commands.md").read_text(), (
        "docs/commands.md is not what the commands are now; run: python docs/commands.py"
    )


def test_the_training_example_has_every_setting_at_its_default(tmp_path: Path) -> None:
    (example,) = blocks("training.md", "toml")
    (tmp_path / "training.toml").write_text(example)
    config = read_config(tmp_path / "training.toml")
    given = ("output", "train", "evaluate", "representation")
    assert set(re.findall(r"^\[?(\w+)", example, re.MULTILINE)) >= {f.name for f in fields(Config)}
    plain = Config(config.output, config.train)
    for field in fields(Config):
        if field.name not in given:
            assert getattr(config, field.name) == getattr(plain, field.name), field.name


def test_the_index_can_be_read_as_its_page_says(
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(template, tmp_path / "my-index")
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("index-format.md", "python")
    exec(compile(example, "index-format.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    index = Index.open("my-index")
    assert len(printed) == len(index)
    dimension = index.settings.dimension
    for line, document in zip(printed, index.documents(), strict=True):
        assert line.startswith(f"{document.id} (")
        assert f", {dimension}) {document.text[:60]}".rstrip() in line


def test_the_page_of_the_format_names_every_table(template: Path) -> None:
    with sqlite3.connect(template / "index.sqlite") as database:
        names = {
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not re.match(r"fulltext_|sqlite_", name)
        }
        columns = {
            name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
            for name in names - {"fulltext", "settings"}
        }
    described = {row[0].strip("`"): row[1] for row in rows("index-format.md") if len(row) == 2}
    assert names <= described.keys()
    for name, own in columns.items():
        for column in own:
            assert f"`{column}`" in described[name], f"{name}.{column}"
    for field in fields(Settings):
        assert f"`{field.name}`" in described["settings"]


def test_the_page_of_the_service_lists_every_address(served: Index) -> None:
    described: dict[str, Any] = create_app(served).openapi()
    addresses = {
        f"`{method.upper()} {path}`" for path, own in described["paths"].items() for method in own
    }
    listed = {row[0] for row in rows("service.md")}
    assert addresses <= listed
    assert {one for one in listed if re.match("`[A-Z]+ /", one)} - addresses == {
        "`GET /`",
        "`GET /openapi.json`",
    }


def test_the_page_of_the_service_lists_every_limit_and_metric() -> None:
    listed = {row[0].strip("`") for row in rows("service.md")}
    limits = ServiceSettings().limits()
    options = {one.opts[0] for one in cli.commands["serve"].params if one.name in limits}
    assert len(options) == len(limits)
    assert options <= listed
    told = re.findall(r"^# TYPE (\w+) (\w+)", Watch().metrics(0).decode(), re.MULTILINE)
    assert {name for name, _ in told if not name.endswith("_created")} <= listed
