"""Nothing acknowledged is lost, whatever the moment at which Milvus dies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pseudoquery.errors import ServiceError
from pseudoquery.milvus.collection import Collection
from tests.cluster import milvus_writer
from tests.cluster.milvus_server import MilvusLite, start_milvus
from tests.storage.test_crash import State, replay
from tests.support.crash_writer import SETTINGS, expected

pytestmark = pytest.mark.cluster
KILLS = 2 if os.environ.get("MILVUS") == "server" else 4  # it takes its time to come back
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MilvusLite]:
    """A Milvus to be killed."""
    started = start_milvus(tmp_path)
    yield started
    started.kill()


def write_until_killed(server: MilvusLite, address: str, seed: int, seconds: float) -> list[str]:
    """Let a writer work for some time, kill Milvus under it, and return what it printed."""
    command = [sys.executable, milvus_writer.__file__, address, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        server.kill()
        process.kill()  # it would wait for Milvus to come back
        printed = process.stdout.read()
    return printed.splitlines(keepends=True)


def check(address: str, state: State, in_flight: State | None) -> State:
    """Find each document as it was acknowledged, or as the operation in flight makes it."""
    collection = Collection.open(address)
    encoded = collection.read({*state, *(in_flight or {})})
    found = {
        id_: (document.stored.document, document.vectors.tolist())
        for id_, document in encoded.items()
    }
    before, after = (
        {id_: (document, expected(document).vectors) for id_, document in documents.items()}
        for documents in (state, in_flight or state)
    )
    for id_ in before.keys() | after.keys() | found.keys():
        assert found.get(id_) in (before.get(id_), after.get(id_)), id_
    listed = {stored.document.id: stored.document for stored in collection.documents()}
    assert listed == {id_: document for id_, (document, _) in found.items()}
    return listed


def test_everything_acknowledged_is_there_after_a_kill(server: MilvusLite) -> None:
    address = f"{server.url}/killed"
    Collection.create(address, SETTINGS)
    choose = random.Random(0)
    state: State = {}
    operations = 0
    for seed in range(KILLS):
        lines = write_until_killed(server, address, seed, 0.5 + choose.random())
        state, in_flight, done = replay(state, lines)
        operations += done
        server.start()
        state = check(address, state, in_flight)
    assert operations >= KILLS
    assert state


def test_a_milvus_that_is_gone_gets_a_sentence(server: MilvusLite) -> None:
    address = f"{server.url}/gone"
    collection = Collection.create(address, SETTINGS)
    server.kill()
    with pytest.raises(ServiceError, match="no Milvus answers"), collection.writer() as writer:
        writer.delete(["a"])
    with pytest.raises(ServiceError, match="no Milvus answers"):
        Collection.open(address)
    server.start()
    for _ in range(120):  # gRPC waits a little before it tries again
        with suppress(ServiceError):
            Collection.open(address)
            break
        time.sleep(0.5)
    with collection.snapshot() as snapshot:  # the same connection works again
        assert snapshot.count() == 0
