"""The reference leaves nothing out: commands, settings, addresses, tables and public names."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
import shutil
import sqlite3
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pseudoquery
from pseudoquery import PRESETS, Representation, SearchSettings
from pseudoquery.cli import cli
from pseudoquery.index import Index
from pseudoquery.service import create_app
from pseudoquery.service.errors import CODES
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.storage.schema import Settings
from pseudoquery.training.config import Config, loss_settings, read_config
from pseudoquery.training.loss_settings import LossSettings

from .pages import DOCS, blocks, rows

COMMANDS = DOCS / "reference" / "commands.md"
FORMAT = DOCS / "concepts" / "index-folder.md"
HTTP = DOCS / "reference" / "http.md"
PYTHON = DOCS / "reference" / "python.md"
SETTINGS = DOCS / "reference" / "settings.md"

DIRECTIVES = re.findall(r"^::: ([\w.]+)$", PYTHON.read_text(), re.MULTILINE)
"""What mkdocstrings describes, by the address that users import it from."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_commands_is_true() -> None:
    written: str = script("commands.py").page()
    assert written == COMMANDS.read_text(), (
        "docs/reference/commands.md is not what the commands are now; run: python docs/commands.py"
    )


def test_every_public_name_is_described() -> None:
    described = {*DIRECTIVES, *re.findall(r"`(pseudoquery\.\w+)`", PYTHON.read_text())}
    assert {f"pseudoquery.{name}" for name in pseudoquery.__all__} <= described


@pytest.mark.parametrize("name", DIRECTIVES)
def test_examples_in_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    described = resolved(name)
    if not isinstance(described, type | ModuleType) and not inspect.isfunction(described):
        return  # of a value, the docstring is its class's
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder().find(described, name):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def resolved(name: str) -> Any:
    """Import what a directive names: a module, or something in one."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except AttributeError:
        return importlib.import_module(name)


def test_the_training_example_has_every_setting_at_its_default(tmp_path: Path) -> None:
    ((_, example),) = blocks(SETTINGS, "toml")
    (tmp_path / "training.toml").write_text(example)
    config = read_config(tmp_path / "training.toml")
    given = ("output", "train", "evaluate", "representation", "loss", "weights")
    assert set(re.findall(r"^\[?(\w+)", example, re.MULTILINE)) >= {f.name for f in fields(Config)}
    plain = Config(config.output, config.train)
    for field in fields(Config):
        if field.name not in given:
            assert getattr(config, field.name) == getattr(plain, field.name), field.name
    assert loss_settings(config) == LossSettings()
    assert set(config.loss) == {field.name for field in fields(LossSettings)}


@pytest.mark.parametrize("kind", [Representation, SearchSettings])
def test_the_settings_are_listed_with_their_defaults(
    kind: type[Representation] | type[SearchSettings],
) -> None:
    named = [row for row in rows(SETTINGS) if len(row) == 3 and row[0].startswith("`")]
    listed = {row[0].strip("`"): row[1] for row in named}
    for name, default in ((field.name, getattr(kind(), field.name)) for field in fields(kind)):
        assert listed[name] == shown(default), name


def shown(value: object) -> str:
    """Write a default as the page does."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, str) else str(value).lower()


def test_the_presets_are_listed() -> None:
    listed = {name for row in rows(SETTINGS) for name in re.findall("`([a-z-]+)`", row[0])}
    assert PRESETS.keys() <= listed


def test_the_settings_of_an_index_are_listed() -> None:
    listed = {row[0].strip("`") for row in rows(SETTINGS)}
    passed = inspect.signature(Index.create).parameters
    assert {name for name in passed if name not in ("folder", "notes")} <= listed


def test_the_index_can_be_read_as_its_page_says(
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(template, tmp_path / "my-index")
    monkeypatch.chdir(tmp_path)
    ((_, example),) = blocks(FORMAT, "python")
    exec(compile(example, FORMAT.name, "exec"), {})
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
    described = {row[0].strip("`"): row[1] for row in rows(FORMAT) if len(row) == 2}
    assert names <= described.keys()
    for name, held in columns.items():
        for column in held:
            assert f"`{column}`" in described[name], f"{name}.{column}"
    for field in fields(Settings):
        assert f"`{field.name}`" in described["settings"]


def test_the_page_of_the_service_lists_every_address(served: Index) -> None:
    described: dict[str, Any] = create_app(served).openapi()
    addresses = {
        f"`{method.upper()} {path}`"
        for path, methods in described["paths"].items()
        for method in methods
    }
    listed = {row[0] for row in rows(HTTP)}
    assert addresses <= listed
    assert {one for one in listed if re.match("`[A-Z]+ /", one)} - addresses == {
        "`GET /`",
        "`GET /openapi.json`",
    }


def test_the_page_of_the_service_lists_every_field_of_a_search(served: Index) -> None:
    described: dict[str, Any] = create_app(served).openapi()
    listed = {row[0].strip("`") for row in rows(HTTP)}
    assert described["components"]["schemas"]["SearchRequest"]["properties"].keys() <= listed


def test_the_page_of_the_service_lists_every_error() -> None:
    listed = {(row[0], row[1].strip("`")) for row in rows(HTTP) if row[0].isdecimal()}
    assert {(str(status), code) for status, code in CODES.items()} <= listed


def test_the_page_of_the_service_lists_every_limit_and_metric() -> None:
    listed = {row[0].strip("`") for row in rows(HTTP)}
    limits = ServiceSettings().limits()
    options = {one.opts[0] for one in cli.commands["serve"].params if one.name in limits}
    assert len(options) == len(limits)
    assert options <= listed
    told = re.findall(r"^# TYPE (\w+) (\w+)", Metrics().as_text(0).decode(), re.MULTILINE)
    assert {name for name, _ in told if not name.endswith("_created")} <= listed


def test_the_settings_of_the_service_are_listed() -> None:
    listed = {row[0]: row[1] for row in rows(SETTINGS) if len(row) == 2}
    options = {one.name: one.opts[0] for one in cli.commands["serve"].params}
    for field in fields(ServiceSettings):
        (row,) = [listed[cell] for cell in listed if f"`{field.name}`" in cell]
        assert f"`{options[field.name]}`" in row
