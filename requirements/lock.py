"""Choose a version of every package that the project and its tests need, and print them.

    python requirements/lock.py > requirements/lock.txt     the newest, as `make lock` does
    python requirements/lock.py --oldest                    the oldest that pyproject.toml allows

pip chooses the newest, in an environment of its own; it must be the pip that will install them, so
that it finds the same builds. uv chooses the oldest, which pip can't.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = ("torch==2.13.0", "triton==3.7.1")
"""Some machines have this torch at hand without CUDA, which saves gigabytes. Where it comes with
CUDA, it wants this triton and no other."""
BUILD_TOOLS = ("pip", "setuptools")
"""What installs the project itself: without them in the lock, an install could still drift."""
CUDA = re.compile(r"nvidia-|cuda-|torch==|triton==")
HEAD = """\
# Every package that `make demo`, `make test`, `make test-cluster` and CI install, with its version.
# Written by `make lock` for Python {python} on Linux; do not edit it by hand.
"""


def main() -> None:
    """Print the versions, one package a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oldest", action="store_true", help="the oldest that the ranges allow")
    versions = oldest() if parser.parse_args().oldest else newest()
    sys.stdout.write(HEAD.format(python=".".join(map(str, sys.version_info[:2]))))
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(versions))


def newest() -> Iterator[tuple[str, str]]:
    """Let pip choose, as if nothing were installed."""
    with tempfile.TemporaryDirectory() as folder:
        python = new_environment(Path(folder), "pip")
        report = Path(folder) / "report.json"
        wanted = [*TORCH, *BUILD_TOOLS, "--editable", f"{ROOT}[dev]"]
        options = ["--quiet", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([python, "-m", "pip", "install", *options, *wanted], check=True)
        for package in json.loads(report.read_text())["install"]:
            name, version = package["metadata"]["name"], package["metadata"]["version"]
            if name != "pseudoquery":
                # A build's own label, such as +cpu, is left out: other machines have other builds.
                yield normal(name), version.partition("+")[0]


def oldest() -> Iterator[tuple[str, str]]:
    """Let uv choose the lowest version of what we name ourselves; torch is the one at hand."""
    with tempfile.TemporaryDirectory() as folder:
        python = new_environment(Path(folder), "uv")
        options = ["--quiet", "--no-header", "--no-annotate", "--extra", "dev"]
        command = ["pip", "compile", "--resolution", "lowest-direct", *options, "pyproject.toml"]
        chosen = subprocess.run(
            [python, "-m", "uv", *command], check=True, capture_output=True, text=True, cwd=ROOT
        )
    lines = [line for line in chosen.stdout.splitlines() if not CUDA.match(line)]
    for line in [*TORCH, *lines]:
        name, _, version = line.partition("==")
        yield normal(name), version


def new_environment(folder: Path, package: str) -> str:
    """Make an environment with the newest version of one package; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--quiet", "--upgrade"]
    subprocess.run([python, "-m", "pip", "install", *options, package], check=True)
    return python


def normal(name: str) -> str:
    """Write a package's name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
