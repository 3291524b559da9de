"""Permissions, terminals, pipes and interruptions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pseudoquery.cli import search_commands
from tests.support.command import Ran, Run, check_refused, write
from tests.support.indexes import RECORDS, content


@pytest.fixture
def public(built: Path) -> Iterator[Path]:
    """An index in a folder that anyone can reach."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copytree(built, Path(folder) / "index"))


def as_nobody(*arguments: object) -> Ran:
    """Run a command as a user without rights; first as root, so that all modules are loaded."""
    program = (
        "import os, shutil, sys\n"
        "import pseudoquery.building.build\n"
        "from pseudoquery.cli import main\n"
        "def call(arguments):\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit as ended:\n"
        "        return ended.code\n"
        "    return 0\n"
        "out, err = os.dup(1), os.dup(2)\n"
        "for stream in (1, 2):\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)\n"
        "call(['search', sys.argv[1], 'king', '--mode', 'bm25'])\n"
        "call(['info', sys.argv[1]])\n"
        "call(['verify', sys.argv[1]])\n"
        "call(['info', 'nowhere'])\n"
        "sys.stdout.flush()\n"
        "os.dup2(out, 1), os.dup2(err, 2)\n"
        "os.setgid(65534), os.setuid(65534)\n"
        "sys.exit(call(sys.argv[2:]))\n"
    )
    warm = next(
        path for path in arguments if isinstance(path, Path) and (path / "index.sqlite").exists()
    )
    done = subprocess.run(
        [sys.executable, "-c", program, warm, *map(str, arguments)], capture_output=True, text=True
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_an_index_that_can_only_be_read(public: Path) -> None:
    searched = as_nobody("search", public, "king", "--mode", "bm25", "--json")
    assert searched.code == 0, searched.err
    assert len(searched.json["hits"]) == 10
    assert as_nobody("info", public, "--json").json["documents"] == 40
    assert "Ranked by words alone" in as_nobody("search", public, "king", "--mode", "bm25").out
    check_refused(as_nobody("delete", public, "id 1"), "no permission", "change its owner or mode")
    assert len(content(public)[0]) == 40


def test_an_index_that_is_private(public: Path) -> None:
    public.chmod(0o700)
    for arguments in (["search", public, "king", "--mode", "bm25"], ["info", public]):
        check_refused(
            as_nobody(*arguments), f"no permission for {public}", "change its owner or mode"
        )
    source = write(public.parent / "docs.jsonl", RECORDS[0])
    ran = as_nobody("index", source, "--out", public, "--model", public)
    check_refused(ran, f"no permission for {public}", "change its owner or mode")
    source.chmod(0o600)
    ran = as_nobody("add", public, source)
    assert (ran.code, ran.out) == (2, "")
    assert "ermission" in ran.err


def test_a_terminal_without_emoji(index: Path, tmp_path: Path, run: Run) -> None:
    source = write(tmp_path / "docs.jsonl", {"id": "smile", "text": "zebra 😀"})
    run("add", index, source)
    program = Path(sys.executable).parent / "pseudoquery"
    for options in ([], ["--json"]):
        done = subprocess.run(
            [program, "search", index, "zebra", "--mode", "bm25", *options],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        )
        assert done.returncode == 0, done.stderr
        shown = (
            json.loads(done.stdout)["hits"][0]["text"] if options else done.stdout.decode("ascii")
        )
        assert ("zebra 😀" if options else "zebra \\U0001f600") in shown


def test_output_that_nobody_reads_to_its_end(built: Path) -> None:
    program = Path(sys.executable).parent / "pseudoquery"
    with subprocess.Popen(
        [program, "list", built, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, b""), "as click has it, without a word"


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_interrupted_by_the_user(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupt(folder: Path) -> None:
        raise error

    monkeypatch.setattr(search_commands, "open_index", interrupt)
    ran = run("info", built)
    assert (ran.code, ran.out) == (130, "")
    assert "every change reported so far is safe" in ran.err


def test_an_unknown_system_error_is_a_sentence(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(5, "Input/output error", "some file")

    monkeypatch.setattr(search_commands, "open_index", fail)
    check_refused(run("info", built), "some file: Input/output error.")


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_is_reported_as_one(tmp_path: Path, debug: bool) -> None:
    program = (
        "from pseudoquery.cli import main, search_commands\n"
        "def fail(folder): raise ZeroDivisionError('oh')\n"
        "search_commands.open_index = fail\n"
        "main(['info', 'x'])\n"
    )
    environment = {**os.environ, **({"PSEUDOQUERY_DEBUG": "1"} if debug else {})}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == debug
    assert ("Error: ZeroDivisionError: oh. This is a bug" in done.stderr) != debug
