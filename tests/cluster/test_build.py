"""What of a build on a cluster needs no cluster: shards are read, encoded and adopted here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.building.build import build, build_notes, refuse
from pseudoquery.building.folder_shards import FolderShards
from pseudoquery.cluster import ray
from pseudoquery.cluster.build import ReadPlan, read_file, start_encoding
from pseudoquery.cluster.ray import _choose_pool, connect, put_shared
from pseudoquery.errors import ClusterError, CorpusError, IndexFolderError, OnBad
from pseudoquery.index import Index
from pseudoquery.records import Added
from pseudoquery.storage.store import folder_store
from tests.support.collection import WORDS
from tests.support.command import Run, write
from tests.support.disks import remount, small_disk

VECTOR_TYPES = ["float16", "float32", "int8"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three shards of documents, some of them empty."""
    rows = [
        {"id": f"d{number}", "text": " ".join(WORDS[: number % 12]), "number": number}
        for number in range(600)
    ]
    return write(tmp_path / "documents.jsonl", *rows)


def encoded(index: Index, corpus: Path) -> dict[str, bytes]:
    """Do the cluster's part of a build; returns the shards by their names."""
    model = index.model
    work = start_encoding(lambda: model, index.settings)
    plan = ReadPlan([str(corpus)], {}, frozenset())
    answers = map(work, read_file(plan, ({"file": 0}, b"")))
    return {facts["name"]: body for facts, body in answers if "name" in facts}


def encode(index: Index, corpus: Path) -> list[str]:
    """Keep what the cluster makes; returns the names of the shards."""
    shards = encoded(index, corpus)
    for name, content in shards.items():
        FolderShards(folder_store(index.store)).keep(name, content)
    return list(shards)


def adopt(index: Index, names: list[str], on_bad: OnBad = refuse) -> Iterator[Added]:
    return FolderShards(folder_store(index.store)).adopt(names, on_bad)


@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
def test_adopted_vectors_are_those_of_one_machine(
    corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder, vector_type: Any
) -> None:
    how = {"model": tiny_model, "vector_type": vector_type}
    for _ in build(str(corpus), tmp_path / "built", **how):
        pass
    expected = Index.open(tmp_path / "built", model=tiny_model)
    index = Index.create(tmp_path / "index", **how)
    names = encode(index, corpus)
    assert len(names) == 3
    assert sum(batch.added for batch in adopt(index, names)) == 600
    assert list(index.documents()) == list(expected.documents())
    with (
        folder_store(index.store).snapshot() as mine,
        folder_store(expected.store).snapshot() as theirs,
    ):
        left, right = (
            np.concatenate([one.decoded() for one in view.segments])
            for view in (mine.view, theirs.view)
        )
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(mine.view.offsets, theirs.view.offsets)
    assert index.verify() == []


def test_a_shard_is_adopted_once(
    corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    names = encode(index, corpus)
    first = FolderShards(folder_store(index.store)).path(names[0])
    content = first.read_bytes()
    assert next(adopt(index, names)).added == 256
    assert first.read_bytes() == b""
    first.write_bytes(content)  # as if it had died between the commit and this
    assert [batch.unchanged for batch in adopt(index, names)] == [256, 0, 0]
    assert [batch.unchanged for batch in adopt(index, names)] == [256, 256, 88]
    assert len(index) == 600
    assert index.verify() == []


def test_a_plain_build_finishes_what_a_cluster_began(
    corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    folder = tmp_path / "index"
    asked = build_notes(str(corpus), None, {"model": tiny_model})
    index = Index.create(folder, notes=asked, model=tiny_model)
    assert next(adopt(index, encode(index, corpus))).added == 256
    done = list(build(str(corpus), folder, model=tiny_model))
    assert sum(batch.unchanged for batch in done) == 256
    assert sum(batch.added for batch in done) == 344
    assert not (folder / "shards").exists()


def test_a_name_tells_content_and_place(corpus: Path) -> None:
    def names(there: frozenset[str] = frozenset()) -> list[tuple[str, bool]]:
        messages = read_file(ReadPlan([str(corpus)], {}, there), ({"file": 0}, b""))
        return [(facts["name"], body != b"") for facts, body in messages if "name" in facts]

    before = names()
    assert all(travels for _, travels in before)
    lines = corpus.read_text().splitlines()
    write(corpus, *lines[:300], '{"id": "d300", "text": "changed"}', *lines[301:])
    after = names(frozenset(name for name, _ in before))
    assert [travels for _, travels in after] == [False, True, False]


def test_an_id_of_two_shards_is_refused(
    corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    lines = corpus.read_text().splitlines()
    write(corpus, *lines, '{"id": "d7", "text": "again"}')
    index = Index.create(tmp_path / "index", model=tiny_model)
    names = encode(index, corpus)
    with pytest.raises(CorpusError, match=r"line 601: the id 'd7' was already used in .* 8;"):
        list(adopt(index, names))
    told: list[CorpusError] = []
    assert [batch.added for batch in adopt(index, names, told.append)] == [0, 0, 88]
    assert len(told) == 1


def test_a_damaged_shard_is_not_adopted(
    corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    names = encode(index, corpus)
    path = FolderShards(folder_store(index.store)).path(names[1])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFolderError, match="damaged; remove it and run this again"):
        list(adopt(index, names))
    assert len(index) == 256


@pytest.mark.parametrize(("room", "kept"), [(0.7, 1), (1.5, 3)])
def test_a_full_disk_loses_nothing(
    room: float, kept: int, corpus: Path, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    """It is full while shards are kept, or when all are there and the index adopts them."""
    reference = Index.create(tmp_path / "reference", model=tiny_model)
    content = encoded(reference, corpus)
    list(adopt(reference, encode(reference, corpus)))
    disk = tmp_path / "disk"
    with small_disk(disk, "size=20m"):
        index = Index.create(disk / "index", model=tiny_model)
        shards = FolderShards(folder_store(index.store))

        def go_on() -> None:
            with index.store.writer():
                for name in sorted(content.keys() - set(shards.names())):
                    shards.keep(name, content[name])
            list(shards.adopt(list(content), refuse))

        used = shutil.disk_usage(disk).used
        remount(disk, f"size={used + int(room * sum(map(len, content.values())))}")
        with pytest.raises(IndexFolderError, match=r"no space is left on .*: free some"):
            go_on()
        assert len(list(shards.names())) == kept
        remount(disk, "size=20m")
        go_on()
        assert list(index.documents()) == list(reference.documents())
        assert index.verify() == []


def test_bad_records_travel_before_the_good(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", {"id": "a", "text": "x"}, "{", {"id": "b", "text": "y"})
    bad, shard, end = read_file(ReadPlan([str(path)], {}, frozenset()), ({"file": 0}, b""))
    assert f"{path} line 2: not valid JSON" in bad[0]["bad"][0]
    assert shard[0]["documents"] == 2
    assert end[0]["shards"] == 1


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"CPU": 2.0}, (1, {"num_cpus": 1})),
        ({"CPU": 3.0}, (2, {"num_cpus": 1})),
        ({"CPU": 64.0}, (56, {"num_cpus": 1})),
        ({"CPU": 64.0, "GPU": 8.0}, (8, {"num_cpus": 1, "num_gpus": 1})),
        ({"CPU": 4.0, "GPU": 8.0}, (3, {"num_cpus": 1, "num_gpus": 1})),
    ],
)
def test_a_pool_leaves_cpus_to_readers(
    resources: dict[str, float], expected: tuple[int, dict[str, int]]
) -> None:
    assert _choose_pool(resources) == expected


def test_a_cluster_needs_two_cpus() -> None:
    with pytest.raises(ClusterError, match="has 1 CPU; it needs at least two"):
        _choose_pool({"CPU": 1.0})


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "no Ray cluster answers at ray://127.0.0.1:1"),
        ("somewhere", "--on somewhere is not a cluster"),
    ],
)
def test_a_cluster_that_is_not_there(on: str, said: str, corpus: Path, run: Run) -> None:
    refused = run("index", corpus, "--out", corpus.parent / "index", "--on", on)
    assert refused.code == 2
    assert said in refused.err
    assert not (corpus.parent / "index").exists()


def test_a_model_travels_by_the_names_of_its_classes(
    tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that Ray copies by value is another class in the worker."""
    pickled: list[bytes] = []

    def put(value: Any) -> None:
        pickled.append(import_module("ray.cloudpickle").dumps(value))

    monkeypatch.setattr(ray, "_import_ray", lambda: SimpleNamespace(put=put))
    monkeypatch.delitem(sys.modules, "pseudoquery.pooling", raising=False)
    put_shared(tiny_model)
    receive = (
        "import sys, pickle; from pseudoquery.encoding.model import representation_of; "
        "representation_of(pickle.load(sys.stdin.buffer))"
    )
    subprocess.run([sys.executable, "-c", receive], input=pickled[0], check=True)


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = pytest.raises(ClusterError, match=r"run: pip install 'pseudoquery\[ray\]'")
    with missing, connect("local"):
        pass


def test_options_that_do_not_go_with_a_cluster(corpus: Path, tmp_path: Path, run: Run) -> None:
    folder = write(tmp_path / "collection" / "corpus.jsonl", {"_id": "a", "text": "x"}).parent
    for arguments, said in (
        (["index", "-", "--out", tmp_path / "i", "--on", "auto"], "can't read standard input"),
        (["evaluate", folder, "--split", "dev", "--on", "auto"], "give it with --index"),
        (["evaluate", folder, "--split", "dev", "--run", corpus, "--on", "auto"], "no effect"),
        (["mine", folder, "--split", "dev", "--out", "n", "--on", "auto"], "with --model bm25"),
    ):
        refused = run(*arguments)
        assert (refused.code, said in refused.err) == (2, True), refused.err
