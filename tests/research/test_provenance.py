"""A figure can be traced to the code: the commit and the hash are of the whole package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pseudoquery
from pseudoquery.research import provenance
from pseudoquery.research.provenance import describe_commit, hash_source


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's Python files, which is taken for the package."""
    source = Path(pseudoquery.__file__).parent
    assert source == provenance.PACKAGE
    for path in source.rglob("*.py"):
        target = tmp_path / "pseudoquery" / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "pseudoquery")
    return tmp_path / "pseudoquery"


def test_the_hash_is_of_all_rooms(package: Path) -> None:
    unchanged = hash_source()
    assert re.fullmatch("[0-9a-f]{12}", unchanged)
    rooms = {path.parent for path in package.rglob("*.py")}
    assert {package, package / "research", package / "search"} <= rooms
    for room in rooms:
        path = next(room.glob("*.py"))
        text = path.read_bytes()
        path.write_bytes(text + b"# changed\n")
        assert hash_source() != unchanged, f"{path} is not covered"
        path.write_bytes(text)
    assert hash_source() == unchanged


def test_the_commit_is_of_the_whole_package(package: Path) -> None:
    assert describe_commit() == "unknown"

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(package.parent), *who, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    git("init")
    assert describe_commit() == "unknown", "there is no commit yet"
    git("add", ".")
    git("commit", "-m", "all")
    assert re.fullmatch("[0-9a-f]{12}", describe_commit())
    (package / "search" / "rank.py").write_text("# changed\n")
    assert describe_commit().endswith("-dirty")
