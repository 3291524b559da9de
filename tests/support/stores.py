"""Documents, and programs of another process, for the tests of index folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pseudoquery.records import Document
from pseudoquery.storage.store import FolderStore
from tests.support.crash_writer import content

SUPPORT = Path(__file__).parent

A, B, C = (Document(id_, f"the text of {id_} ", id_.upper(), {"id": id_}) for id_ in "abc")
WRITE = """
try:
    with store.writer() as writer:
        crash_writer.put(writer, crash_writer.Document("new", "new"))
    print("written")
except PseudoqueryError as error:
    print(error)
"""
"""A program that adds a document to `store`, or prints why it can't."""


def everything(store: FolderStore) -> dict[str, Any]:
    with store.snapshot() as snapshot:
        return content(snapshot)


def start_python(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program in a process of its own, with this folder's modules."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )


def run_python(program: str, *arguments: object) -> str:
    """Run a program in a process of its own, with this folder's modules, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
