"""`pseudoquery backup` and `restore`."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Run, check_refused
from tests.support.indexes import content


def test_backup_and_restore(run: Run, index: Path, tmp_path: Path) -> None:
    file, again = tmp_path / "saved" / "index.backup", tmp_path / "again"
    assert run("backup", index, file).out == f"Saved 40 documents in {file}.\n"
    said = run("restore", file, again).out
    assert said == f"Restored 40 documents in {again}; the index is sound.\n"
    assert content(again) == content(index)
    saved = run("backup", again, tmp_path / "second", "--json").json
    assert saved["documents"] == 40
    assert run("restore", tmp_path / "second", tmp_path / "third", "--json").json == saved


def test_bad_input(run: Run, index: Path, tmp_path: Path) -> None:
    check_refused(run("backup", tmp_path, tmp_path / "file"), "is not an index")
    check_refused(run("backup", index, index / "index.sqlite"), "is there already")
    check_refused(run("restore", tmp_path / "none", tmp_path / "again"), str(tmp_path / "none"))
    check_refused(run("restore", tmp_path, tmp_path / "again"), str(tmp_path))
    check_refused(run("restore", index / "index.sqlite", tmp_path / "again"), "no sound backup")
    assert not (tmp_path / "again").exists()
