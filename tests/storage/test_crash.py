"""Nothing acknowledged is lost, whatever the moment at which the writer dies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.records import Document
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from tests.support import crash_writer
from tests.support.crash_writer import content, expected

KILLS = 110
LONGEST = 0.15
"""Seconds of writing before a kill, at most."""

State = dict[str, Document]


def run_and_kill(folder: Path, seed: int, seconds: float) -> list[str]:
    """Let a writer work for some time, kill it, and return the lines that it printed."""
    command = [sys.executable, crash_writer.__file__, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.kill()
        printed = process.stdout.read()
    assert process.returncode == -9
    return printed.splitlines(keepends=True)


def after(state: State, operation: dict[str, Any]) -> State:
    """Say what documents there must be after an operation."""
    added = [Document(**fields) for fields in operation.get("add", [])]
    gone = set(operation.get("delete", []))
    kept = {id_: document for id_, document in state.items() if id_ not in gone}
    return kept | {document.id: document for document in added}


def replay(state: State, lines: list[str]) -> tuple[State, State | None, int]:
    """Return the acknowledged state, the one that the operation in flight leads to, and a count."""
    whole = [line for line in lines if line.endswith("\n")]  # the last may have been cut
    done = 0
    for start, end in zip(whole[::2], whole[1::2], strict=False):
        assert end == "done\n"
        state = after(state, json.loads(start))
        done += 1
    in_flight = after(state, json.loads(whole[-1])) if len(whole) % 2 else None
    return state, in_flight, done


def orphans(store: FolderStore) -> list[Path]:
    """List files among the segments that no committed row names."""
    with store.bare_snapshot() as snapshot:
        named = {segment_path(store.folder, facts.number) for facts in snapshot.segment_facts()}
    return sorted(set((store.folder / "segments").iterdir()) - named)


@pytest.mark.slow
def test_writer_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    FolderStore.create(folder, crash_writer.SETTINGS)
    choose = random.Random(0)
    state: State = {}
    seen: Counter[str] = Counter()
    for seed in range(KILLS):
        lines = run_and_kill(folder, seed, choose.uniform(0, LONGEST))
        state, in_flight, done = replay(state, lines)
        store = FolderStore.open(folder)
        left = orphans(store)
        with store.snapshot() as snapshot:  # a reader comes before any new writer
            found = content(snapshot)
        possible = [state] if in_flight is None else [state, in_flight]
        documents = {id_: stored.document for id_, stored in found.items()}
        assert documents in possible, f"after kill {seed}"
        assert found == {id_: expected(document) for id_, document in documents.items()}
        assert problems(store) == [], f"after kill {seed}"
        assert orphans(store) == [], "the next writer removes what the dead one left"
        if in_flight is not None and in_flight != state:
            seen["committed, not acknowledged" if documents == in_flight else "undone"] += 1
        seen["orphan"] += bool(left)
        seen["operations"] += done
        state = documents
    # The kills came at moments that matter: between writing a file and naming it, between
    # committing and acknowledging, and before either.
    assert seen["operations"] > KILLS
    assert seen["orphan"] > 0
    assert seen["undone"] > 0


def test_random_documents_differ() -> None:
    """The other tests would show little if they wrote the same over and over."""
    choose = random.Random(0)
    drawn = [crash_writer.random_document(choose) for _ in range(50)]
    assert len({document.text for document in drawn}) > 30
    assert {len(crash_writer.vectors_of(document)) for document in drawn} == {0, 1, 2, 3, 4, 5}
