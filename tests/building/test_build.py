"""Building an index of a corpus: in constant memory, and going on where it was interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.building import build as build_module
from pseudoquery.building.build import build
from pseudoquery.cli import main
from pseudoquery.encoding.model import load_model
from pseudoquery.errors import CorpusError, IndexFolderError, ModelError
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.records import Added, Document
from pseudoquery.storage import incoming
from pseudoquery.storage.store import FolderStore, folder_store

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]
QUERIES = ["who was the king of the city", "music and song", "water fire"]


def record(number: int) -> dict[str, Any]:
    words = [WORDS[number % 11], WORDS[number % 7], WORDS[number % 5], str(number)]
    return {"id": f"id {number}", "text": " ".join(words), "n": number}


def lines(records: Sequence[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def write(path: Path, records: Sequence[Any]) -> str:
    path.write_text(lines(records))
    return str(path)


def total(batches: Iterator[Added]) -> Added:
    parts = list(batches)
    return Added(
        sum(batch.added for batch in parts),
        sum(batch.updated for batch in parts),
        sum(batch.unchanged for batch in parts),
    )


def everything(folder: Path, model: Any = None) -> tuple[list[Document], list[Any], list[Any]]:
    """Read what a search can depend on, and some results."""
    index = Index.open(folder, model=model)
    with folder_store(index.store).snapshot() as snapshot:
        view = snapshot.view
        vectors = view.vectors(0, view.vector_count).tolist()
        assert view.live.all()
    answers = index.search_many(QUERIES, 20)
    found = [[(hit.id, hit.score) for hit in answer.hits] for answer in answers]
    return list(index.documents()), vectors, found


class KilledError(Exception):
    """Stands in for a kill, at a chosen moment."""


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Make the build die before it commits the batch after this many."""
    encode, left = Index.encode, iter(range(after))

    def dying(self: Index, documents: Sequence[Document]) -> Any:
        if next(left, None) is None:
            raise KilledError
        return encode(self, documents)

    monkeypatch.setattr(Index, "encode", dying)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "BATCH_DOCUMENTS", 4)


@pytest.fixture
def interrupted(
    tmp_path: Path,
    tiny_model_path: str,
    small_batches: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A folder in which 8 of the 20 documents of docs.jsonl were indexed, then something broke."""
    source = write(tmp_path / "docs.jsonl", [record(number) for number in range(20)])
    folder = tmp_path / "index"
    with monkeypatch.context() as patch:
        interrupt(patch, after=2)
        with pytest.raises(KilledError):
            total(build(source, folder, model=tiny_model_path))
    assert len(Index.open(folder)) == 8
    return folder


# --- killed


@pytest.mark.slow
def test_a_killed_build_goes_on(
    tmp_path: Path,
    tiny_model_path: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command is killed with SIGKILL while it waits for more input, then run again."""
    records = [record(number) for number in range(700)]
    command = ["index", "-", "--out", str(tmp_path / "index"), "--model", tiny_model_path, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from pseudoquery.cli import main; main()", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    with process:
        assert process.stdin
        # Eight batches of 64, and not a ninth: it waits for more.
        process.stdin.write(lines(records[:550]).encode())
        process.stdin.flush()
        while process.poll() is None and committed(tmp_path / "index") < 512:
            time.sleep(0.02)
        assert process.poll() is None
        process.kill()
    assert process.returncode == -9
    assert committed(tmp_path / "index") == 512

    encoded: list[str] = []
    encode = Index.encode

    def counted(self: Index, documents: Sequence[Document]) -> Any:
        encoded.extend(document.id for document in documents)
        return encode(self, documents)

    monkeypatch.setattr(Index, "encode", counted)
    source = tmp_path / "docs.jsonl"
    write(source, records)
    with source.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        main(command)
    report = json.loads(capsys.readouterr().out)
    assert report == {"added": 188, "updated": 0, "unchanged": 512, "cut": 0, "skipped": 0}
    assert encoded == [f"id {number}" for number in range(512, 700)]

    with source.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        main(["index", "-", "--out", str(tmp_path / "whole"), "--model", tiny_model_path])
    capsys.readouterr()
    assert everything(tmp_path / "index") == everything(tmp_path / "whole")
    assert Index.open(tmp_path / "index").verify() == []

    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert "already holds a finished index" in capsys.readouterr().err


def committed(folder: Path) -> int:
    """Count the documents that are safely there, if the index is."""
    try:
        with FolderStore.open(folder).snapshot() as snapshot:
            return snapshot.count()
    except IndexFolderError:
        return 0


# --- interrupted, and run again


def test_an_interrupted_build_goes_on(
    interrupted: Path, tmp_path: Path, tiny_model_path: str
) -> None:
    source = str(tmp_path / "docs.jsonl")
    assert total(build(source, interrupted, model=tiny_model_path)) == Added(12, 0, 8)
    total(build(source, tmp_path / "whole", model=tiny_model_path))
    assert everything(interrupted) == everything(tmp_path / "whole")
    with pytest.raises(IndexFolderError, match="already holds a finished index"):
        total(build(source, interrupted, model=tiny_model_path))
    assert len(Index.open(interrupted)) == 20


def test_however_its_source_is_spelt(
    interrupted: Path, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert total(build("../docs.jsonl", interrupted, model=tiny_model_path)) == Added(12, 0, 8)


def test_another_source_is_refused(interrupted: Path, tmp_path: Path, tiny_model_path: str) -> None:
    other = write(tmp_path / "other.jsonl", [record(number) for number in range(20)])
    with pytest.raises(IndexFolderError) as caught:
        total(build(other, interrupted, model=tiny_model_path))
    assert f"an unfinished index of {tmp_path / 'docs.jsonl'}" in str(caught.value)
    assert len(Index.open(interrupted)) == 8


@pytest.mark.parametrize(
    "changes",
    [{"long": "truncate"}, {"vector_type": "float32"}, {"representation": preset("paper")}],
)
def test_other_settings_are_refused(
    interrupted: Path, tmp_path: Path, tiny_model_path: str, changes: dict[str, Any]
) -> None:
    source = str(tmp_path / "docs.jsonl")
    with pytest.raises(IndexFolderError, match="begun with other settings"):
        total(build(source, interrupted, model=tiny_model_path, **changes))
    assert len(Index.open(interrupted)) == 8


def test_interrupted_before_anything_was_committed(
    tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "docs.jsonl", [record(0)])
    with monkeypatch.context() as patch:
        interrupt(patch, after=0)
        with pytest.raises(KilledError):
            total(build(source, tmp_path / "index", model=tiny_model_path))
    assert total(build(source, tmp_path / "index", model=tiny_model_path)) == Added(1)


def test_a_model_in_memory_is_taken_again(
    tmp_path: Path,
    tiny_model: MultiVectorEncoder,
    tiny_model_path: str,
    small_batches: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = write(tmp_path / "docs.jsonl", [record(number) for number in range(10)])
    with monkeypatch.context() as patch:
        interrupt(patch, after=1)
        with pytest.raises(KilledError):
            total(build(source, tmp_path / "index", model=tiny_model))
    other = load_model(tiny_model_path, preset("recommended", k=2))
    with pytest.raises(ModelError, match="was made with another model"):
        total(build(source, tmp_path / "index", model=other))
    assert total(build(source, tmp_path / "index", model=tiny_model)) == Added(6, 0, 4)


def test_a_record_mended_after_a_stop_is_taken(
    tmp_path: Path, tiny_model_path: str, small_batches: None
) -> None:
    records: list[Any] = [record(number) for number in range(12)]
    source = write(tmp_path / "docs.jsonl", [*records[:9], {"id": "no text"}, *records[9:]])
    with pytest.raises(CorpusError, match="line 10"):
        total(build(source, tmp_path / "index", model=tiny_model_path))
    assert len(Index.open(tmp_path / "index")) == 8
    mended = {"id": "no text", "text": "moon"}
    write(tmp_path / "docs.jsonl", [*records[:9], mended, *records[9:]])
    assert total(build(source, tmp_path / "index", model=tiny_model_path)) == Added(5, 0, 8)


# --- what can't be built


def test_a_source_that_can_t_be_read_leaves_nothing(tmp_path: Path, tiny_model_path: str) -> None:
    (tmp_path / "no.pdf").write_bytes(b"%PDF")
    malformed = tmp_path / "docs.jsonl"
    malformed.write_text("not JSON\n")
    for source in (tmp_path / "nowhere.jsonl", tmp_path / "no.pdf", malformed):
        with pytest.raises(CorpusError):
            total(build(str(source), tmp_path / "index", model=tiny_model_path))
        assert not (tmp_path / "index").exists()


def test_an_empty_corpus_makes_an_empty_index(tmp_path: Path, tiny_model_path: str) -> None:
    source = write(tmp_path / "docs.jsonl", [])
    assert total(build(source, tmp_path / "index", model=tiny_model_path)) == Added()
    assert len(Index.open(tmp_path / "index")) == 0


@pytest.mark.parametrize("apart", [1, 2, 9])
@pytest.mark.parametrize("same", [False, True])
def test_duplicate_ids(
    tmp_path: Path, tiny_model_path: str, small_batches: None, apart: int, same: bool
) -> None:
    """Whether in one batch or another, and whether with the same content or another."""
    records = [record(number) for number in range(12)]
    twin = dict(records[0]) if same else {**records[0], "text": "another"}
    records.insert(apart, twin)
    source = write(tmp_path / "docs.jsonl", records)
    with pytest.raises(CorpusError) as caught:
        total(build(source, tmp_path / "stopped", model=tiny_model_path))
    assert str(caught.value) == (
        f"{source} line {apart + 1}: the id 'id 0' was already used in {source} line 1; "
        "every document needs an id of its own."
    )
    bad: list[CorpusError] = []
    done = total(build(source, tmp_path / "index", on_bad=bad.append, model=tiny_model_path))
    assert done == Added(12)
    assert len(bad) == 1
    first = Index.open(tmp_path / "index").get("id 0")
    assert first
    assert first.text == records[0]["text"], "the first one stays"


def test_documents_are_read_as_they_are_needed(
    tmp_path: Path, tiny_model_path: str, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus without an end: what is read is committed before more is read."""
    read = 0

    def endless(source: str, on_bad: object, columns: object) -> Iterator[Document]:
        nonlocal read
        for read in count(1):
            yield Document(f"id {read}", "moon", origin=f"line {read}")

    monkeypatch.setattr(build_module, "read_documents", endless)
    batches = build("endless", tmp_path / "index", model=tiny_model_path)
    assert list(islice(batches, 5)) == [Added(4)] * 5
    assert read == 20


def test_every_kind_of_source_gives_the_same_vectors(tmp_path: Path, tiny_model_path: str) -> None:
    texts = {f"{number}.txt": record(number)["text"] for number in range(5)}
    pairs = [{"id": id_, "text": text} for id_, text in texts.items()]
    write(tmp_path / "a.jsonl", pairs)
    (tmp_path / "beir").mkdir()
    write(tmp_path / "beir" / "corpus.jsonl", [{"_id": p["id"], "text": p["text"]} for p in pairs])
    (tmp_path / "a.tsv").write_text("".join(f"{id_}\t{text}\n" for id_, text in texts.items()))
    rows = "".join(f'{id_},"{text}"\n' for id_, text in texts.items())
    (tmp_path / "a.csv").write_text(f"id,text\n{rows}")
    (tmp_path / "files").mkdir()
    for id_, text in texts.items():
        (tmp_path / "files" / id_).write_text(text)
    found = []
    for number, name in enumerate(["a.jsonl", "beir", "a.tsv", "a.csv", "files"]):
        folder = tmp_path / f"index {number}"
        total(build(str(tmp_path / name), folder, model=tiny_model_path))
        documents, vectors, results = everything(folder)
        found.append(([(document.id, document.text) for document in documents], results))
        assert np.isfinite(vectors).all()
    assert all(result == found[0] for result in found)
