"""The clients: many that search, and a few that write, read back and look for what was written."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from benchmarks.load.connection import Connection, Reply, document_path
from benchmarks.load.ledger import Ledger, Seen, Text

IDS_PER_WRITER = 16
TOP = 10
PROBE = "What was written last?"
"""Any question will do: a filter leaves one document at most."""


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do, and with what."""

    port: int
    questions: Sequence[str]
    texts: Sequence[str]
    """What the written documents say, and after it the number of their change."""
    kept: frozenset[str]
    """The ids of the documents that nobody changes."""
    clients: int = 64
    writers: int = 4
    pause: float = 1.0
    """Seconds from one change of a writer to its next, at least."""


@dataclass(slots=True, repr=False)  # asyncio would write all of it out when a run ends
class Tally:
    """What came of it."""

    ledger: Ledger
    unread: list[Reply] = field(default_factory=list)
    """Answers to searches; they are read when the load is over."""
    searches: list[float] = field(default_factory=list)
    """Seconds that each took."""
    writes: list[float] = field(default_factory=list)
    changes: list[tuple[float, str, Text]] = field(default_factory=list)
    """When each change was asked for, of which document, and what it says then."""
    probed: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def written_ids(load: Load) -> list[str]:
    """List the ids that may be written."""
    return [f"w{w}/{n}" for w in range(load.writers) for n in range(IDS_PER_WRITER)]


async def run(load: Load, ledger: Ledger, seconds: float) -> Tally:
    """Let all clients work for a while; each finishes what it has begun."""
    tally = Tally(ledger)
    end = time.monotonic() + seconds
    searching = [_search(load, tally, number, end) for number in range(load.clients)]
    writing = [_write(load, tally, number, end) for number in range(load.writers)]
    await asyncio.gather(*searching, *writing)
    return tally


def read_answers(load: Load, tally: Tally) -> None:
    """Look at what the searches found."""
    for reply in tally.unread:
        tally.searches.append(reply.seconds)
        if _expect(tally, reply, 200, "search"):
            _note_hits(load, tally, reply, reply.content["answers"][0]["hits"])
    tally.unread.clear()


async def look_at_all(load: Load, ledger: Ledger) -> Tally:
    """Read every document that there should be or that there was, and search for each written."""
    tally = Tally(ledger)
    async with Connection(load.port) as connection:
        for id_ in sorted(load.kept):
            reply = await connection.ask("GET", document_path(id_))
            if reply.status != 200:
                tally.errors.append(f"GET of a document that nobody changes: {reply.status}")
        for id_ in written_ids(load):
            await _get(connection, tally, id_)
            await _probe(connection, tally, id_)
        alive = len(load.kept) + sum(ledger.text(id_) is not None for id_ in written_ids(load))
        info = await connection.ask("GET", "/info")
        if info.content["index"]["documents"] != alive:
            counted = info.content["index"]["documents"]
            tally.errors.append(f"the service counts {counted} documents, and there are {alive}")
    return tally


async def metrics(port: int) -> str:
    """Read the service's figures."""
    async with Connection(port) as connection:
        return str((await connection.ask("GET", "/metrics")).content)


async def _search(load: Load, tally: Tally, number: int, end: float) -> None:
    """Ask one question after the other."""
    questions = load.questions[number :: load.clients] or load.questions
    async with Connection(load.port) as connection:
        for place in count():
            body = {"query": questions[place % len(questions)], "top": TOP}
            reply = await connection.ask("POST", "/search", body)
            tally.unread.append(reply)
            if reply.answered > end:
                return


def _note_hits(load: Load, tally: Tally, reply: Reply, hits: Sequence[dict[str, Any]]) -> None:
    ids = [hit["id"] for hit in hits]
    if len(set(ids)) != TOP:
        tally.errors.append(f"a search found {len(set(ids))} documents and not {TOP}")
    texts = {hit["id"]: hit["text"] for hit in hits if hit["id"] not in load.kept}
    if texts:
        tally.seen.append(Seen(reply.sent, reply.answered, texts))


async def _write(load: Load, tally: Tally, writer: int, end: float) -> None:
    """Change one of this writer's documents; then read and search for any that is ever written."""
    choose = random.Random(f"{writer} {len(tally.ledger.changes)}")
    everything = written_ids(load)
    ids = everything[writer * IDS_PER_WRITER : (writer + 1) * IDS_PER_WRITER]
    async with Connection(load.port) as connection:
        for turn in _turns(load.pause, end):
            await asyncio.sleep(turn)
            await _change(connection, load, tally, choose, choose.choice(ids))
            await _get(connection, tally, choose.choice(everything))
            await _probe(connection, tally, choose.choice(everything), writer)


def _turns(pause: float, end: float) -> Iterator[float]:
    """Say how long to wait before each turn, until the end."""
    due = time.monotonic()
    while (now := time.monotonic()) < end:
        yield max(0.0, due - now)
        due = max(due, now) + pause


async def _change(
    connection: Connection, load: Load, tally: Tally, choose: random.Random, id_: str
) -> None:
    """Delete a document, or write it anew; the service must know whether it existed."""
    exists = tally.ledger.text(id_) is not None
    if choose.random() < 0.4:
        change = tally.ledger.ask(id_, None)
        reply = await connection.ask("DELETE", document_path(id_))
        fine = _expect(tally, reply, 200 if exists else 404, "delete")
    else:
        text = f"{choose.choice(load.texts)} ({len(tally.ledger.changes.get(id_, []))})"
        change = tally.ledger.ask(id_, text)
        body = {"text": text, "metadata": {"written": id_}}
        reply = await connection.ask("PUT", document_path(id_), body)
        fine = _expect(tally, reply, 200, "put")
        if fine and reply.content["updated" if exists else "added"] != 1:
            tally.errors.append(f"put of {id_}: {reply.content}")
    if fine:
        tally.ledger.acknowledge(change)
    tally.writes.append(reply.seconds)
    tally.changes.append((change.asked, id_, change.text))


async def _get(connection: Connection, tally: Tally, id_: str) -> None:
    reply = await connection.ask("GET", document_path(id_))
    if reply.status == 404 or _expect(tally, reply, 200, "get"):
        text = reply.content["text"] if reply.status == 200 else None
        tally.seen.append(Seen(reply.sent, reply.answered, {id_: text}))


async def _probe(connection: Connection, tally: Tally, id_: str, writer: int = 0) -> None:
    """Search for one document that a filter singles out: if it exists, the search must return it.

    Each writer asks for another number of hits, so that no two probes are searched as one batch.
    """
    body = {"query": PROBE, "top": TOP + writer, "where": {"written": id_}}
    reply = await connection.ask("POST", "/search", body)
    tally.probed.append(id_)
    if _expect(tally, reply, 200, "search"):
        texts = {hit["id"]: hit["text"] for hit in reply.content["answers"][0]["hits"]}
        if set(texts) - {id_}:
            tally.errors.append(f"a filter for {id_} let others through")
        tally.seen.append(Seen(reply.sent, reply.answered, {id_: texts.get(id_)}))


def _expect(tally: Tally, reply: Reply, status: int, what: str) -> bool:
    if reply.status != status:
        tally.errors.append(f"{what}: {reply.status} and not {status}: {reply.content}")
    return reply.status == status
