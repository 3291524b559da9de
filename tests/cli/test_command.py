"""The command as a whole: its help, its imports, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from pseudoquery.cli import cli
from pseudoquery.version import VERSION
from tests.support.command import Run, check_refused, write
from tests.support.indexes import RECORDS


def test_demo_makes_its_index_where_it_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    check_refused(run("demo", "--folder", tmp_path / "other"), str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-index").write_text("a file")
    check_refused(run("demo"), "demo-index")


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"pseudoquery, version {VERSION}\n"
    assert run("-h").out == run("--help").out
    for name, command in cli.commands.items():
        shown = run(name, "--help").out
        assert command.help
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.opts}"
                assert option.opts[0] in shown


@pytest.mark.parametrize("module", ["pseudoquery", "pseudoquery.cli"])
def test_the_package_runs_as_a_program(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"pseudoquery, version {VERSION}\n"


def test_every_option_is_used_in_a_test() -> None:
    folder = Path(__file__).parents[1]
    tests = "".join(path.read_text() for path in folder.rglob("test_*.py"))
    for name, command in cli.commands.items():
        assert f'run("{name}"' in tests or f'main(["{name}"' in tests
        for option in command.params:
            if isinstance(option, click.Option):
                assert f'"{option.opts[0]}"' in tests


def load(program: str) -> set[str]:
    """Run a program, and return the heavy libraries that it loaded."""
    heavy = "{'torch', 'transformers', 'sentence_transformers', 'numpy', 'rich', 'faiss', 'scipy'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*({heavy} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    assert load("from pseudoquery.cli import main\nmain(['--help'])") == set()
    assert load("from pseudoquery.cli import main\nmain(['search', '--help'])") == set()


def test_the_package_imports_no_model_library() -> None:
    assert load("import pseudoquery; pseudoquery.SearchSettings") == set()
    heavy = {"torch", "transformers", "sentence_transformers", "faiss"}
    assert not load("import pseudoquery; pseudoquery.Index") & heavy


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "{}"],
        ["search", "{}", "a", "--top", "many"],
        ["search", "{}", "a", "--mode", "magic"],
        ["search", "{}", "a", "--structure", "tree"],
        ["index", "docs.jsonl"],
        ["index", "docs.jsonl", "--out", "x", "--k", "0"],
        ["index", "docs.jsonl", "--out", "x", "--long", "cut"],
        ["index", "docs.jsonl", "--out", "x", "--vector-type", "int4"],
        ["add", "{}", "docs.jsonl", "--on-error", "ignore"],
        ["nothing"],
        ["search", "{}", "a", "--nothing"],
    ],
)
def test_wrong_usage(run: Run, built: Path, arguments: list[str]) -> None:
    ran = run(*(word.format(built) for word in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err
    assert "Usage: " in ran.err
    assert not Path("x").exists()


def test_what_is_no_index(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        folder = tmp_path / name
        for arguments in (
            ["search", folder, "king"],
            ["add", folder, write(tmp_path / "docs.jsonl", RECORDS[0])],
            ["delete", folder, "x"],
            ["explain", folder, "king", "x"],
            ["list", folder],
            ["info", folder],
            ["verify", folder],
            ["compact", folder],
        ):
            check_refused(
                run(*arguments), f"{folder} is not an index", "pseudoquery index DOCUMENTS"
            )
    assert not (tmp_path / "nowhere").exists()
