"""What is tested is what is installed: every package has the version that the lock says."""

from __future__ import annotations

import os
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
CUDA = re.compile(r"nvidia-|cuda-")
"""What torch brings along where it comes with CUDA: it names their versions itself."""
LOCK = ROOT / os.environ.get("PSEUDOQUERY_LOCK", "requirements/lock.txt")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def needed(name: str, extras: frozenset[str], known: set[tuple[str, frozenset[str]]]) -> None:
    """Walk through all that a package needs, with these extras."""
    if (name, extras) in known:
        return
    known.add((name, extras))
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        contexts = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker and not any(map(requirement.marker.evaluate, contexts)):
            continue
        needed(normal(requirement.name), frozenset(requirement.extras), known)


@pytest.mark.skipif(not LOCK.exists(), reason="an environment of its own making")
def test_every_package_has_its_locked_version() -> None:
    known: set[tuple[str, frozenset[str]]] = set()
    needed("pseudoquery", frozenset({"dev"}), known)
    names = {name for name, _ in known if name != "pseudoquery" and not CUDA.match(name)}
    versions = locked(LOCK)
    assert names <= versions.keys(), "run `make lock`: it must name every package"
    installed = {name: distribution(name).version.partition("+")[0] for name in names}
    assert installed == {name: versions[name] for name in names}


def test_the_lock_has_what_installs_the_project() -> None:
    assert {"pip", "setuptools"} <= locked(ROOT / "requirements" / "lock.txt").keys()


def test_the_lock_names_packages_and_versions_alone() -> None:
    text = (ROOT / "requirements" / "lock.txt").read_text()
    assert re.fullmatch(r"(#.*\n)*([a-z0-9-]+==[\w.]+\n)+", text)
