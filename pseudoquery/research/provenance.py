"""Which version of the code has produced a figure."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder of the whole package, whose rooms are its folders."""


def describe_commit() -> str:
    """Return the commit from git; an installed package, or a copy without history, is "unknown"."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def hash_source() -> str:
    """Hash all Python files of the package, so that a figure can be traced without git."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
