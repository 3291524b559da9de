"""Commands and programs in the pages run as they stand, from the top of a page to its end."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pseudoquery.cli import cli, main
from pseudoquery.training.config import read_config

from .pages import DOCS, README, TAUGHT, blocks, name_of

SKIPPED = ("#", "make ", "pip install", "source ")
DEMO = "demo-index"
"""It takes minutes to make; of a command that names it, only the options are checked."""
SHELL = "|&;<>"
_SCRIPT = re.compile(r"^(?:.*<<'END'.*\n(?:.*\n)*?END|(?:.*\\\n)*.+)$", re.MULTILINE)
COMMAND = f'pseudoquery() {{ {shlex.quote(sys.executable)} -m pseudoquery.cli "$@"; }}\n'
REFERENCE = sorted(DOCS.glob("reference/*.md"))
PROGRAMS = [page for page in [*TAUGHT, *REFERENCE] if blocks(page, "python")]


@pytest.mark.parametrize("page", [page for page in TAUGHT if blocks(page, "bash")], ids=name_of)
def test_commands_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main sets another; put it back
    for _, code in blocks(page, "bash"):
        for script in scripts(code):
            if not script.startswith(SKIPPED):
                run_script(script)
    assert "Error" not in capsys.readouterr().err


@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_programs_print_what_they_say(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    for _, code in blocks(page, "python"):
        capsys.readouterr()
        exec(compile(code, name_of(page), "exec"), {"__name__": "__main__"})
        expected = re.findall(r"print\(.*\)  # (.*)", code)
        assert capsys.readouterr().out.splitlines() == expected, code


def test_the_readme_and_the_tutorial_say_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a beginner sees first is what the commands print."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    tutorial = DOCS / "get-started" / "tutorial.md"
    commands = [one for _, code in blocks(tutorial, "bash") for one in scripts(code)]
    assert sum(command.startswith("pseudoquery ") for command in commands) >= 10
    for command in commands:
        run_script(command)
    printed = capsys.readouterr().out
    for sentence in ("Indexed 4 documents.", "Proven exact", "my-index is sound."):
        assert sentence in printed
        assert any(sentence in code for _, code in blocks(tutorial, "text"))
    assert blocks(README, "python")
    assert blocks(README, "bash")


@pytest.mark.parametrize("page", TAUGHT, ids=name_of)
def test_training_files_are_configurations(page: Path, tmp_path: Path) -> None:
    for _, example in blocks(page, "toml"):
        (tmp_path / "training.toml").write_text(example)
        assert read_config(tmp_path / "training.toml").train


def test_scripts_are_cut_where_a_shell_would() -> None:
    document = "cat > a <<'END'\npseudoquery x\nEND\n"
    code = f"{document}pseudoquery y \\\n  --z\n\n# no\npseudoquery 'a|b' # c\n"
    first, second, comment, last = scripts(code)
    assert first == "cat > a <<'END'\npseudoquery x\nEND"
    assert second == "pseudoquery y \\\n  --z"
    assert comment.startswith(SKIPPED)
    assert arguments(second) == ["y", "--z"]
    assert arguments(last) == ["a|b"]
    assert arguments("pseudoquery list i > ids.txt") is None
    assert arguments('pseudoquery list i --where "year>=2020"') == [
        "list",
        "i",
        "--where",
        "year>=2020",
    ]


def scripts(code: str) -> list[str]:
    """Cut a block into commands; a here-document and a continued line belong to theirs."""
    return _SCRIPT.findall(code)


def run_script(script: str) -> None:
    """Run one command: pseudoquery's own in this process, which has torch loaded already."""
    own = arguments(script) if script.startswith("pseudoquery ") else None
    if own is None:
        subprocess.run(["bash", "-euo", "pipefail", "-c", COMMAND + script], check=True)
    elif DEMO in own:
        assert cli.commands[own[0]].make_context(own[0], own[1:])
    else:
        main(own)


def arguments(script: str) -> list[str] | None:
    """Read the arguments of a command; None if a shell has to, for a pipe or a redirection."""
    script = script.replace("\\\n", " ")
    if "<<'" in script:
        return None
    parts = list(shlex.shlex(script, posix=True, punctuation_chars=SHELL))
    if any(set(part) <= set(SHELL) for part in parts):
        return None
    return shlex.split(script, comments=True)[1:]
