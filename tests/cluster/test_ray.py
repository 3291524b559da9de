"""Encoding, mining and asking on a Ray cluster of three nodes, some of which are killed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pseudoquery.building.build import build
from pseudoquery.building.milvus_shards import MilvusShards
from pseudoquery.building.shard import SHARD_DOCUMENTS, documents_in, first_position
from pseudoquery.cluster.build import OnEncoded, build_on_cluster
from pseudoquery.cluster.ray import Work, WorkerMessage, connect, map_on_workers
from pseudoquery.errors import ClusterError, CorpusError, IndexFolderError
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.milvus.collection import Collection
from pseudoquery.milvus.index import MilvusIndex
from pseudoquery.storage.store import FolderStore
from tests.support.collection import WORDS, write_collection
from tests.support.command import Run, write

pytestmark = pytest.mark.cluster
Started = TypeVar("Started")
DOCUMENTS = 2000
MEMORY = 100 << 20
"""Bytes for the objects of each node."""


def started_at_last(start: Callable[[], Started]) -> Started:
    """Start nodes. Now and then one says nothing, and Ray gives up after 30 s: then once more."""
    try:
        return start()
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        return start()


class Nodes:
    """A head that only leads, and two nodes that work, the second one twice as much.

    Of their three CPUs one is for reading, so the second has a worker at least, to be killed with.
    """

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."  # as the command does; Ray is imported once
        os.environ["RAY_AUTH_MODE"] = "disabled"  # whether or not this user has a token
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # it would starve
        # Ray's client server forks while gRPC has threads, whose repair of forks may crash then.
        os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._client_port = free.getsockname()[1]
        self._cluster = import_module("ray.cluster_utils").Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": MEMORY,
                "include_dashboard": False,
                "ray_client_server_port": self._client_port,
            },
        )
        self._workers: list[Any] = []
        self.complete()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def client_address(self) -> str:
        return f"ray://127.0.0.1:{self._client_port}"

    def complete(self) -> None:
        for cpus in (1, 2)[len(self._workers) :]:
            how = {"num_cpus": cpus, "object_store_memory": MEMORY, "wait": False}
            self._workers.append(started_at_last(partial(self._cluster.add_node, **how)))
        self._cluster.wait_for_nodes()

    def kill_one(self) -> None:
        self._cluster.remove_node(self._workers.pop(), allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def started() -> Iterator[Nodes]:
    nodes = started_at_last(Nodes)
    yield nodes
    nodes.stop()


@pytest.fixture
def nodes(started: Nodes) -> Nodes:
    started.complete()
    return started


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file, of which a build on one machine and one on many make the same batches."""
    chance = random.Random(0)
    rows = [
        {"id": f"d{number}", "text": " ".join(chance.choices(WORDS, k=chance.randint(0, 30)))}
        for number in range(DOCUMENTS)
    ]
    return write(tmp_path_factory.mktemp("corpus") / "documents.jsonl", *rows)


@pytest.fixture(scope="module")
def settings(tiny_model_path: str) -> dict[str, Any]:
    return {"model": tiny_model_path, "representation": preset("recommended", k=4)}


@pytest.fixture(scope="module")
def plain(corpus: Path, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine makes of it."""
    folder = tmp_path_factory.mktemp("plain") / "index"
    for _ in build(str(corpus), folder, **settings):
        pass
    return folder


def stored(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of each document, in the order of documents."""
    vectors = {}
    with FolderStore.open(folder).snapshot() as snapshot:
        ids = snapshot.ids()
        for segment in snapshot.view.segments:
            ends = np.cumsum(segment.counts)
            for ordinal, start, end in zip(
                segment.ordinals, ends - segment.counts, ends, strict=True
            ):
                vectors[ids[int(ordinal)]] = segment.decoded(slice(start, end))
    return vectors


def check_equal(folder: Path, plain: Path) -> None:
    """Both indexes hold the same documents in the same order, with the same vectors, bit by bit."""
    mine, expected = stored(folder), stored(plain)
    assert list(mine) == list(expected)
    assert all(np.array_equal(mine[id_], expected[id_]) for id_ in expected)
    index = Index.open(folder)
    assert index.verify() == []
    assert list(index.documents()) == list(Index.open(plain).documents())
    assert not (folder / "shards").exists()


def killing(nodes: Nodes, encoded: list[int]) -> OnEncoded:
    """Note what is encoded, and kill a node when something is for the first time."""

    def on_encoded(documents: int) -> None:
        if not encoded:
            nodes.kill_one()
        encoded.append(documents)

    return on_encoded


def test_a_node_that_dies_costs_no_document(
    nodes: Nodes, corpus: Path, plain: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    encoded: list[int] = []
    added = build_on_cluster(
        nodes.address,
        str(corpus),
        tmp_path / "index",
        on_encoded=killing(nodes, encoded),
        **settings,
    )
    assert sum(batch.added for batch in added) == DOCUMENTS
    assert sum(encoded) == DOCUMENTS
    assert len(encoded) > 4  # there was work left when it died
    check_equal(tmp_path / "index", plain)


def test_a_killed_build_goes_on(
    nodes: Nodes, corpus: Path, plain: Path, settings: dict[str, Any], tmp_path: Path, run: Run
) -> None:
    folder = tmp_path / "index"
    arguments = ["index", str(corpus), "--out", str(folder), "--on", nodes.address]
    arguments += ["--model", settings["model"], "--k", "4"]
    command = [sys.executable, "-m", "pseudoquery.cli", *arguments]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not any((folder / "shards").glob("*.shard")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    left = {path: path.stat().st_ino for path in (folder / "shards").glob("*.shard")}
    assert len(left) < DOCUMENTS // 256
    kept = []

    def on_encoded(_: int) -> None:
        kept.append(all(path.stat().st_ino == number for path, number in left.items()))

    added = build_on_cluster(
        nodes.address,
        str(corpus),
        folder,
        on_encoded=on_encoded,
        long="windows",
        vector_type="float16",
        precision="float32",
        **settings,
    )
    assert sum(batch.added for batch in added) == DOCUMENTS
    assert all(kept)  # none of them was written again
    check_equal(folder, plain)
    again = run(*arguments)
    assert (again.code, "already holds a finished index" in again.err) == (2, True)


def test_milvus_gets_each_document_once(
    nodes: Nodes,
    corpus: Path,
    plain: Path,
    settings: dict[str, Any],
    address: str,
    tmp_path: Path,
    run: Run,
) -> None:
    """The command is killed; then it is run again, and a node is."""
    arguments = ["index", str(corpus), "--out", address, "--model", settings["model"], "--k", "4"]
    on = ["--on", nodes.address]
    command = [sys.executable, "-m", "pseudoquery.cli", *arguments, *on]
    whole: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not whole:
            assert process.poll() is None
            time.sleep(0.02)
            with suppress(IndexFolderError):  # it is not there yet
                whole = MilvusShards(Collection.open(address)).names()
        process.send_signal(signal.SIGKILL)
    whole = MilvusShards(Collection.open(address)).names()
    assert len(whole) < DOCUMENTS // 256
    kept = row_keys(address, whole)
    alone = run(*arguments)
    assert (alone.code, '"on": "a cluster"' in alone.err) == (2, True)
    encoded: list[int] = []
    added = list(
        build_on_cluster(
            nodes.address,
            str(corpus),
            address,
            on_encoded=killing(nodes, encoded),
            long="windows",
            vector_type="float16",
            precision="float32",
            **settings,
        )
    )
    assert sum(encoded) == sum(batch.total for batch in added) == DOCUMENTS
    assert sum(batch.unchanged for batch in added) == sum(map(documents_in, whole))
    assert row_keys(address, whole) == kept  # none of them was written again
    assert Collection.open(address).count() == DOCUMENTS
    MilvusIndex.open(address).to_folder(tmp_path / "copy")
    check_equal(tmp_path / "copy", plain)
    again = run(*arguments, *on)
    assert (again.code, "already holds a finished index" in again.err) == (2, True)


def row_keys(address: str, shards: list[str]) -> set[int]:
    """Read the keys that Milvus has given to the rows of shards."""
    collection = Collection.open(address)
    keys = set()
    for first in map(first_position, shards):
        here = f"version >= {first} and version < {first + SHARD_DOCUMENTS}"
        keys |= {row["row"] for row in collection.rows(f"place >= 0 and {here}", ["row"])}
    return keys


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": f"d{number}", "text": f"{WORDS[number % 30]} {number}"} for number in range(40)]
    return write(tmp_path_factory.mktemp("few") / "documents.jsonl", *rows)


@pytest.fixture(scope="module")
def plain_few(
    few: Path, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What one machine makes of them."""
    folder = tmp_path_factory.mktemp("plain-few") / "index"
    for _ in build(str(few), folder, **settings):
        pass
    return folder


@pytest.mark.parametrize("on", ["local", "auto", "client"])
def test_other_ways_to_a_cluster(
    on: str,
    nodes: Nodes,
    few: Path,
    plain_few: Path,
    tiny_model_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)  # what "auto" takes for this machine's
    cluster = nodes.client_address if on == "client" else on
    arguments = ["index", str(few), "--out", str(tmp_path / "index"), "--on", cluster]
    arguments += ["--model", tiny_model_path, "--k", "4"]
    # A process of its own: one that is connected to a cluster can't ask for another.
    command = [sys.executable, "-m", "pseudoquery.cli", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    check_equal(tmp_path / "index", plain_few)


def test_many_files_bad_records_and_a_folder_of_8_bits(
    nodes: Nodes, tiny_model_path: str, address: str, tmp_path: Path, run: Run
) -> None:
    source = tmp_path / "shards"
    rows = [{"id": f"d{number}", "text": f"{WORDS[number % 30]} {number}"} for number in range(90)]
    write(source / "a.jsonl", *rows[:30], "{", {"id": "d3", "text": "a double"})
    write(source / "b.jsonl", *rows[30:70], {"id": "d1", "text": "another double"})
    packed = "".join(f"{json.dumps(row)}\n" for row in rows[70:])
    (source / "c.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    how = ["--model", tiny_model_path, "--k", "4", "--vector-type", "int8"]
    where = [*how, "--on", nodes.address]
    refused = run("index", source, "--out", tmp_path / "refused", *where)
    assert refused.code == 2
    assert f"{source / 'a.jsonl'} line 31: not valid JSON" in refused.err
    assert "Traceback" not in refused.err
    skipping = ["--on-error", "skip", "--json"]
    ours = run("index", source.as_uri(), "--out", tmp_path / "ours", *where, *skipping)
    theirs = run("index", source, "--out", tmp_path / "theirs", *how, *skipping)
    assert (ours.code, ours.json) == (0, theirs.json)
    assert (ours.json["added"], ours.json["skipped"]) == (90, 3)
    there = run("index", source, "--out", address, *where, *skipping)
    assert (there.code, there.json, there.err) == (0, theirs.json, theirs.err)
    assert run("list", address).out == run("list", tmp_path / "theirs").out
    mine, expected = stored(tmp_path / "ours"), stored(tmp_path / "theirs")
    assert list(mine) == list(expected)
    for id_, vectors in expected.items():
        # A batch does not go beyond a file here, so the last digits may differ.
        np.testing.assert_allclose(mine[id_], vectors, atol=0.02)
    assert Index.open(tmp_path / "ours").verify() == []


def test_mining_and_asking_find_the_same(
    nodes: Nodes, tiny_model_path: str, tmp_path: Path, run: Run
) -> None:
    collection = write_collection(tmp_path / "collection")
    mine = ["mine", collection, "--split", "train", "--model", tiny_model_path, "--depth", "5"]
    ours = run(*mine, "--out", tmp_path / "ours.jsonl", "--on", nodes.address)
    theirs = run(*mine, "--out", tmp_path / "theirs.jsonl")
    assert (ours.code, theirs.code) == (0, 0), ours.err
    assert (tmp_path / "ours.jsonl").read_text() == (tmp_path / "theirs.jsonl").read_text()
    index = tmp_path / "index"
    assert run("index", collection, "--out", index, "--model", tiny_model_path).code == 0
    ask = ["evaluate", collection, "--split", "dev", "--index", index, "--json"]
    ours = run(*ask, "--save-run", tmp_path / "ours.run", "--on", nodes.address)
    theirs = run(*ask, "--save-run", tmp_path / "theirs.run")
    assert (ours.code, ours.json) == (0, theirs.json), ours.err
    assert (tmp_path / "ours.run").read_text() == (tmp_path / "theirs.run").read_text()


def test_a_worker_that_always_dies_ends_the_run(nodes: Nodes) -> None:
    def begin() -> Work:
        def work(_: WorkerMessage) -> WorkerMessage:
            os._exit(1)

        return work

    with connect(nodes.address), pytest.raises(ClusterError, match="has given up, after up to 4"):
        list(map_on_workers([({}, b"poison")], begin))


def test_what_is_left_early_leaves_no_thread_behind(nodes: Nodes) -> None:
    def begin() -> Work:
        return lambda message: message

    def read(_: WorkerMessage) -> Iterator[WorkerMessage]:
        for number in range(30):
            yield {"number": number}, bytes(200_000)
        raise CorpusError("line 31 is bad")

    files: list[WorkerMessage] = [({"file": file}, b"") for file in range(3)]
    with connect(nodes.address):
        before = set(threading.enumerate())
        with pytest.raises(CorpusError, match="line 31 is bad"):
            list(map_on_workers(files, begin, read))
        assert set(threading.enumerate()) <= before, "who leaves the cluster now may crash"
        for _ in map_on_workers(files, begin, read):
            break
        assert set(threading.enumerate()) <= before
