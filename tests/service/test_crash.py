"""What the service has acknowledged is there, however it ends."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pseudoquery.client import Client
from pseudoquery.errors import ServiceError
from pseudoquery.records import Document
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.verify import problems
from tests.support.collection import DOCUMENTS
from tests.support.serving import LINES, Forks, Running, lines

KILLS = int(os.environ.get("PSEUDOQUERY_KILLS", "5"))
MOST = 40
"""So many changes are acknowledged, at most, before the service is killed."""
WRITERS = 4

State = dict[str, Document | None]


@dataclass
class Writer:
    """A client with ids of its own: what it was told is stored, and what it has just asked for."""

    number: int
    known: State = field(default_factory=dict)
    asked: State = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.known = {f"{self.number}/{place}": None for place in range(4)}
        self._choose = random.Random(self.number)

    def write(self, url: str) -> None:
        """Change documents until the service is gone."""
        client = Client(url)
        try:
            while True:
                self._change(client)
                self.known |= self.asked
                self.asked = {}
        except ServiceError as error:
            if error.status:  # it is there, and refuses
                raise

    def _change(self, client: Client) -> None:
        kind = self._choose.choice(["put", "put", "delete", "bulk"])
        ids = list(self.known)
        chosen = ids if kind == "bulk" else [self._choose.choice(ids)]
        number = self._choose.randrange(10**9)
        self.asked = {
            id_: None
            if kind == "delete"
            else Document(id_, f"moon {number} {id_}", "", {"n": number})
            for id_ in chosen
        }
        if kind == "delete":
            assert client.delete(chosen[0]) == (self.known[chosen[0]] is not None)
        else:
            documents = [document for document in self.asked.values() if document]
            added = client.add(documents) if kind == "bulk" else client.put(documents[0])
            assert added.added + added.updated == len(documents)
        self.done[kind] += 1


@pytest.mark.slow
def test_a_killed_service_has_lost_nothing(forks: Forks, template: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "index"))
    choose = random.Random(0)
    writers = [Writer(number) for number in range(WRITERS)]
    in_flight: Counter[str] = Counter()
    for kill in range(KILLS):
        pid, url = forks.start(folder)
        with ThreadPoolExecutor(WRITERS) as pool:
            writing = [pool.submit(writer.write, url) for writer in writers]
            wanted = acknowledged(writers) + choose.randrange(8, MOST)
            while acknowledged(writers) < wanted and not any(one.done() for one in writing):
                time.sleep(0.002)
            time.sleep(choose.uniform(0, 0.05))  # then at any moment of the next change
            assert forks.end(pid, signal.SIGKILL) == -signal.SIGKILL
            for one in writing:
                one.result(60)
        store = FolderStore.open(folder)
        with store.snapshot() as snapshot:
            found = {stored.document.id: stored.document for stored in snapshot.documents()}
            assert len(snapshot.ids()) == len(found)
        for writer in writers:
            seen = {id_: found.pop(id_, None) for id_ in writer.known}
            possible = [writer.known, {**writer.known, **writer.asked}]
            assert seen in possible, f"after kill {kill}"
            if writer.asked:
                in_flight["done" if seen == possible[1] else "undone"] += 1
            writer.known, writer.asked = seen, {}
        assert found == {document.id: document for document in DOCUMENTS}
        assert problems(store) == [], f"after kill {kill}"
    total = sum((writer.done for writer in writers), Counter[str]())
    assert set(total) == {"put", "delete", "bulk"}
    assert total.total() >= 8 * KILLS
    assert in_flight.total() > 0


def acknowledged(writers: Sequence[Writer]) -> int:
    """Count the changes that were told to be done."""
    return sum(writer.done.total() for writer in writers)


def test_a_service_that_is_told_to_stop_finishes_what_it_accepted(
    forks: Forks, template: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "index"))
    pid, url = forks.start(folder)
    port = urlsplit(url).port
    assert port
    told = threading.Event()

    def stored() -> int:
        with FolderStore.open(folder).snapshot() as snapshot:
            return snapshot.count()

    def documents() -> Iterator[bytes]:
        for number in range(200):
            if number == 100:
                while stored() < len(DOCUMENTS) + 64:  # what came so far
                    time.sleep(0.01)
                os.kill(pid, signal.SIGTERM)
                told.set()
                time.sleep(0.3)
                with pytest.raises(OSError, match="refused"):
                    HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/healthz")
            yield lines({"id": f"n{number}", "text": f"moon {number}"})

    reply = Running(port).ask("POST", "/documents", documents(), kind=LINES)
    assert told.is_set()
    assert (reply.status, reply.json["added"]) == (200, 200)
    assert forks.wait(pid) == 0
    assert stored() == len(DOCUMENTS) + 200
    assert problems(FolderStore.open(folder)) == []
    log = forks.log.read_text()
    assert "Traceback" not in log
    assert "moon" not in log
