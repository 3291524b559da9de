"""The load run's own bookkeeping: it must notice what it is there to notice."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import clients, direct
from benchmarks.load.batches import read_batches
from benchmarks.load.clients import Load, Tally, look_at_all, read_answers, written_ids
from benchmarks.load.ledger import Change, Ledger, Seen, wrong
from pseudoquery.index import Index
from pseudoquery.records import Added, Answer, Document
from pseudoquery.service.metrics import SIZES, Metrics
from tests.support.collection import DOCUMENTS
from tests.support.serving import Running, running

ROOT = Path(__file__).parents[2]
QUESTIONS = ["what about the king", "who saw the moon", "where is the river", "war and peace"]


def ledger_of(*changes: Change) -> Ledger:
    """A document "a" with these changes."""
    return Ledger({"a": [Change(None, -math.inf, -math.inf), *changes]})


WRITTEN_THEN_DELETED = ledger_of(Change("one", 10, 12), Change("two", 20, 22), Change(None, 30, 32))


@pytest.mark.parametrize(
    ("sent", "answered", "possible"),
    [
        (1, 9, {None}),  # it was not asked for yet
        (1, 10, {None, "one"}),
        (11, 11.5, {None, "one"}),  # asked for, and not acknowledged
        (12.5, 19, {"one"}),
        (12.5, 25, {"one", "two"}),
        (1, 40, {None, "one", "two"}),
        (23, 29, {"two"}),
        (31, 31, {None, "two"}),
        (33, 40, {None}),
    ],
)
def test_what_a_request_may_have_seen(
    sent: float, answered: float, possible: set[str | None]
) -> None:
    assert WRITTEN_THEN_DELETED.possible("a", sent, answered) == possible


def test_a_change_without_an_acknowledgement_may_be_seen_or_not() -> None:
    ledger = ledger_of(Change("one", 10, 12), Change(None, 20))
    assert ledger.possible("a", 100, 101) == {"one", None}
    with pytest.raises(ValueError, match="before its last change"):
        ledger.ask("a", "two")


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (Seen(13, 14, {"a": None}), "lost"),
        (Seen(33, 34, {"a": "two"}), "resurrected"),
        (Seen(1, 2, {"a": "one"}), "before it was written"),
        (Seen(23, 24, {"a": "one"}), "outdated"),
        (Seen(13, 14, {"b": "never written"}), "resurrected"),
    ],
)
def test_what_can_not_have_been_seen_is_told(seen: Seen, sentence: str) -> None:
    (found,) = wrong(WRITTEN_THEN_DELETED, [seen, Seen(13, 14, {"a": "one"})])
    assert sentence in found


@given(st.lists(st.integers(1, SIZES[-1]), min_size=1, max_size=50))
def test_sizes_of_batches_from_the_histogram(sizes: list[int]) -> None:
    watch = Metrics()
    watch.batches.observe(7)
    before = read_batches(watch.as_text(0).decode())
    for size in sizes:
        watch.batches.observe(size)
    found = read_batches(watch.as_text(0).decode()).since(before).sizes()
    assert sum(found) == sum(sizes)
    assert len(found) == len(sizes)

    def bucket(size: int) -> int:
        return next(place for place, bound in enumerate(SIZES) if size <= bound)

    # Rounding may lead just over the edge of a bucket.
    for true, guess in zip(sorted(sizes), sorted(found), strict=True):
        near = (max(1, guess - 1), guess, min(guess + 1, SIZES[-1]))
        assert bucket(true) in map(bucket, near)


def test_a_batch_beyond_the_histogram_is_refused() -> None:
    watch = Metrics()
    watch.batches.observe(SIZES[-1] + 1)
    with pytest.raises(ValueError, match="more than 128 queries"):
        read_batches(watch.as_text(0).decode())


def load_for(service: Running) -> Load:
    texts = [document.text for document in DOCUMENTS]
    ids = frozenset(document.id for document in DOCUMENTS)
    return Load(service.port, QUESTIONS, texts, ids, clients=8, writers=3, pause=0.02)


def all_wrong(*tallies: Tally) -> list[str]:
    errors = [error for tally in tallies for error in tally.errors]
    return errors + [one for tally in tallies for one in wrong(tally.ledger, tally.seen)]


def test_a_load_on_a_service_that_is_right_finds_nothing(served: Index) -> None:
    ledger = Ledger()
    with running(served) as service:
        load = load_for(service)
        tally = asyncio.run(clients.run(load, ledger, 1.5))
        read_answers(load, tally)
        batches = read_batches(asyncio.run(clients.metrics(load.port)))
        looked = asyncio.run(look_at_all(load, ledger))
    assert all_wrong(tally, looked) == []
    assert len(tally.searches) > load.clients
    assert {text is None for _, _, text in tally.changes} == {True, False}
    assert len(tally.probed) == len(tally.changes)
    assert batches.queries == len(tally.searches) + len(tally.probed)
    assert sum(batches.without_single(len(tally.probed)).sizes()) == len(tally.searches)
    assert len(looked.seen) == 2 * len(written_ids(load))


def test_a_document_that_is_lost_or_comes_back_is_noticed(served: Index) -> None:
    ledger = Ledger()
    with running(served) as service:
        load = load_for(service)
        tally = asyncio.run(clients.run(load, ledger, 1.5))
        read_answers(load, tally)
        assert all_wrong(tally) == []
        alive = [id_ for id_ in ledger.changes if ledger.text(id_)]
        deleted = next(id_ for id_ in written_ids(load) if not ledger.text(id_))
        served.delete(alive[:1])
        served.add([Document(deleted, "moon", metadata={"written": deleted})])
        served.add([Document(alive[1], "river", metadata={"written": alive[1]})])
        found = all_wrong(asyncio.run(look_at_all(load, ledger)))
        assert sorted(set(found)) == sorted(
            [
                f"{alive[0]}: lost",
                f"{deleted}: resurrected, or seen before it was written",
                f"{alive[1]}: outdated or made up",
            ]
        )
        served.delete([deleted, DOCUMENTS[0].id])
        errors = asyncio.run(look_at_all(load, ledger)).errors
        assert any("nobody changes: 404" in error for error in errors)
        assert any("counts" in error for error in errors)


def test_the_same_work_without_a_service(served: Index) -> None:
    before = len(served)
    changes: Sequence[tuple[float, str, str | None]] = [
        (0.0, "w0/0", "moon"),
        (0.5, "w0/1", "sun"),
        (1.0, "w0/0", None),  # when the searches are done
    ]
    done = direct.carry_out(served, QUESTIONS, [3, 1, 5], ["w0/0", "w0/1"], changes)
    assert done["seconds"] > 0
    assert (len(served), served.get("w0/0")) == (before + 1, None)


def test_a_change_has_its_place_among_the_searches(
    served: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    found: list[int] = []
    search, add = served.search_many, served.add

    def count(queries: Sequence[str], *how: Any, **more: Any) -> list[Answer]:
        searched.append(len(queries))
        return search(queries, *how, **more)

    def note(documents: Iterable[Document]) -> Added:
        found.append(sum(searched))
        return add(documents)

    monkeypatch.setattr(served, "search_many", count)
    monkeypatch.setattr(served, "add", note)
    changes = [(part, f"w0/{number}", "moon") for number, part in enumerate((0.0, 0.5, 0.9))]
    direct.carry_out(served, QUESTIONS, [2] * 10, [], changes)
    assert len(found) == len(changes)
    assert all(part * 20 <= at for (part, _, _), at in zip(changes, found, strict=True))


@pytest.mark.slow
def test_the_whole_command(template: Path) -> None:
    options = ["--seconds", "1", "--turns", "1", "--clients", "8", "--pause", "0.1"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", "--index", str(template), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["errors"], found["wrong"]) == (0, 0)
    assert found["changes"] > 0
    assert found["load"]["search_milliseconds"]["p99"] > 0
    assert found["comparison"]["ratio"] > 0
