"""The README is the tutorial: its commands and its Python run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from pseudoquery.cli import cli, main
from pseudoquery.recipe import read_config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run_line(line: str, script: str) -> None:
    if line.startswith("pseudoquery "):
        main(shlex.split(line)[1:])
    else:
        subprocess.run(["bash", "-euc", script], check=True)


def scripts(block: str) -> list[str]:
    """Cut a block into commands; one that opens a here-document goes to its end."""
    return re.findall(r"^(?:.*<<'END'\n(?:.*\n)*?END|.+)$", block, re.MULTILINE)


def test_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [s for block in blocks("bash") for s in scripts(block) if not s.startswith("make ")]
    assert sum(command.startswith("pseudoquery ") for command in commands) >= 10
    for command in commands:
        if "demo-index" in command:  # it takes a minute to make; here its options must be right
            arguments = shlex.split(command)[1:]
            assert cli.commands[arguments[0]].make_context(arguments[0], arguments[1:])
            continue
        run_line(command.split("\n")[0], command)
    printed = capsys.readouterr().out
    assert "Indexed 3 documents." in printed
    assert "Proven exact" in printed
    assert "my-index is sound." in printed


def test_python_examples_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    assert len(blocks("python")) == 2
    for example in blocks("python"):
        expected = re.findall(r"print\(.*\)  # (.*)", example)
        exec(compile(example, "README.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == expected


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_every_command_is_shown() -> None:
    shown = set(re.findall(r"(?:^|`)pseudoquery (\w+)", README, re.MULTILINE))
    assert set(cli.commands) - shown == {"demo"}


def test_the_training_example_is_a_configuration(tmp_path: Path) -> None:
    (example,) = blocks("toml")
    (tmp_path / "training.toml").write_text(example)
    config = read_config(tmp_path / "training.toml")
    assert (config.refresh_steps, config.representation) == (50, {"k": 8})


def test_file_map_is_true() -> None:
    (tree,) = re.findall(r"## File map\n\n```\n(.*?)```", README, re.DOTALL)
    listed = set(re.findall(r"\b(\w+\.py)\b", tree))
    there = {path.name for path in (ROOT / "pseudoquery").glob("*.py")}
    assert listed == there - {"__init__.py", "version.py"}
