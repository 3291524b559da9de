"""What is exported comes back whole; a folder is there when all of it is, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pseudoquery.corpus import export as export_module
from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.corpus.documents import read_documents
from pseudoquery.corpus.export import Exported, ExportFormat, JudgedSplit, export
from pseudoquery.errors import CorpusError, IndexFolderError, QueryError
from pseudoquery.index import Index
from pseudoquery.records import Document, Qrel, Query
from tests.support.collection import DOCUMENTS, write_collection
from tests.support.command import Run

EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
both_formats = pytest.mark.parametrize("format_", EXPORT_FORMATS)

text = st.text(st.characters(exclude_categories=["Cs"]))
number = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalar = st.none() | st.booleans() | number | text
json_value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
a_document = st.builds(
    Document,
    id=text.filter(bool),
    text=text,
    title=text,
    metadata=st.dictionaries(text | st.sampled_from(["id", "text", "metadata"]), json_value),
)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(str(write_collection(tmp_path / "collection", answers=True)), "dev")


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@both_formats
@settings(max_examples=40)
@given(documents=st.lists(a_document, min_size=1, max_size=5))
def test_nothing_is_lost(format_: ExportFormat, documents: list[Document]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "out"
        assert export(documents, folder, format_) == Exported(len(documents))
        exported = list(read_documents(folder))
    assert exported == documents
    # Equal is not the same: 1 == 1.0 == True.
    assert repr([document.metadata for document in exported]) == repr(
        [document.metadata for document in documents]
    )


@both_formats
def test_no_documents(tmp_path: Path, format_: ExportFormat) -> None:
    assert export([], tmp_path / "out", format_) == Exported()
    assert list(read_documents(tmp_path / "out")) == []


@both_formats
def test_a_test_collection(tmp_path: Path, dataset: Dataset, format_: ExportFormat) -> None:
    out = tmp_path / "out"
    done = export(dataset.documents(), out, format_, judged=JudgedSplit(dataset, "dev"))
    assert done == Exported(12, 12, 12)
    exported = load_dataset(str(out), "dev")
    assert exported.queries == dataset.queries
    assert exported.queries[0].answers
    assert exported.qrels == dataset.qrels
    assert list(exported.documents()) == list(dataset.documents())


def test_datasets_reads_it(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    judged = JudgedSplit(dataset, "dev")
    export(dataset.documents(), tmp_path / "out", "parquet", judged=judged)
    corpus = datasets.load_dataset(str(tmp_path / "out"), "corpus", split="corpus")
    assert corpus["_id"][:2] == ["d0", "d1"]
    qrels = datasets.load_dataset(str(tmp_path / "out"))["dev"]
    assert qrels[0] == {"query-id": "q0-2", "corpus-id": "d0", "score": 1}
    queries = datasets.load_dataset(str(tmp_path / "out"), "queries")["queries"]
    assert queries[0]["text"] == "where is the king"
    saved = tmp_path / "saved"
    corpus.save_to_disk(str(saved))
    assert list(read_documents(saved)) == list(dataset.documents())


@both_formats
def test_judgements_of_other_documents(
    tmp_path: Path, dataset: Dataset, format_: ExportFormat
) -> None:
    judged = JudgedSplit(dataset, "dev")
    with pytest.raises(CorpusError, match="collection judges none of the exported documents"):
        export(DOCUMENTS, tmp_path / "out", format_, judged=judged)
    assert left(tmp_path) == ["collection"]
    export([*DOCUMENTS, Document("d0", "x")], tmp_path / "out", format_, judged=judged)


def test_names_that_a_format_can_not_hold(tmp_path: Path, dataset: Dataset) -> None:
    odd = replace(dataset, queries=(Query("a\tb", "x"),), qrels=(Qrel("a\tb", "d0", 1),))
    documents = [Document("d0", "x")]
    with pytest.raises(CorpusError, match="has an id with a tab or a newline"):
        export(documents, tmp_path / "out", judged=JudgedSplit(odd, "dev"))
    export(documents, tmp_path / "parquet", "parquet", judged=JudgedSplit(odd, "dev"))
    assert load_dataset(str(tmp_path / "parquet"), "dev").qrels == odd.qrels
    with pytest.raises(CorpusError, match="'dev-2' can't be the name of a split"):
        export(documents, tmp_path / "out", "parquet", judged=JudgedSplit(dataset, "dev-2"))
    with pytest.raises(QueryError, match="there is no format 'xml'; choose one of beir, parquet"):
        export(documents, tmp_path / "out", "xml")  # type: ignore[arg-type]
    assert left(tmp_path) == ["collection", "parquet"]


@both_formats
def test_what_is_there_stays(tmp_path: Path, format_: ExportFormat) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(IndexFolderError, match=f"{name} is there already; choose another"):
            export(DOCUMENTS, tmp_path / name, format_)
    assert left(tmp_path) == ["file", "folder", "link"]
    assert (tmp_path / "file").read_text() == "precious"


@both_formats
def test_what_came_meanwhile_stays(tmp_path: Path, format_: ExportFormat) -> None:
    def documents() -> Iterator[Document]:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").write_text("precious")
        yield DOCUMENTS[0]

    with pytest.raises(IndexFolderError, match="can't be used"):
        export(documents(), tmp_path / "out", format_)
    assert left(tmp_path) == ["out"]
    assert left(tmp_path / "out") == ["file"]


@both_formats
def test_a_failure_leaves_nothing(tmp_path: Path, format_: ExportFormat) -> None:
    def documents() -> Iterator[Document]:
        yield from DOCUMENTS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(documents(), tmp_path / "out", format_)
    assert left(tmp_path) == []


PROGRAM = """
import itertools, resource, signal, sys
from pathlib import Path
from pseudoquery.corpus.export import export
from pseudoquery.records import Document

size, format_, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
if size:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
def documents():
    for number in itertools.count():
        if number == 2000:
            print("writing", flush=True)
        yield Document(str(number), f"{number} river " * 100)
try:
    export(documents(), folder, format_)
except Exception as error:
    sys.exit(str(error))
"""


@both_formats
def test_a_full_disk_leaves_nothing(tmp_path: Path, format_: ExportFormat) -> None:
    program = [sys.executable, "-c", PROGRAM, "200000", format_, str(tmp_path / "out")]
    ran = subprocess.run(program, capture_output=True, text=True)
    assert ran.stderr.startswith(f"no space is left on the disk of {tmp_path / 'out'}")
    assert left(tmp_path) == []


@both_formats
def test_a_killed_export_leaves_nothing_that_looks_whole(
    tmp_path: Path, format_: ExportFormat
) -> None:
    program = [sys.executable, "-c", PROGRAM, "0", format_, str(tmp_path / "out")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    (partial,) = left(tmp_path)
    assert partial.startswith(".out.")
    assert partial.endswith(".partial")
    export(DOCUMENTS, tmp_path / "out", format_)
    assert list(read_documents(tmp_path / "out")) == DOCUMENTS


@both_formats
def test_memory_does_not_grow(
    tmp_path: Path, format_: ExportFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "GROUP_CHARACTERS", 100_000)
    export(DOCUMENTS, tmp_path / "warm", format_)
    list(read_documents(tmp_path / "warm"))
    documents = (Document(str(number), f"{number} " + "x" * 20_000) for number in range(1000))
    tracemalloc.start()
    export(documents, tmp_path / "out", format_)
    assert sum(1 for _ in read_documents(tmp_path / "out")) == 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # of 20 MB of text


def test_a_parquet_file_has_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "GROUP_ROWS", 7)
    export(DOCUMENTS, tmp_path / "out", "parquet")
    facts = pq.ParquetFile(tmp_path / "out" / "corpus.parquet")
    assert facts.num_row_groups == 5
    assert set(facts.schema_arrow.types) == {pa.string()}
    facts.close()
    assert list(read_documents(tmp_path / "out")) == DOCUMENTS


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=r"pip install 'pseudoquery\[datasets\]'$"):
        export(DOCUMENTS, tmp_path / "out", "parquet")
    assert left(tmp_path) == []


@both_formats
def test_the_command(
    template: Path, tmp_path: Path, run: Run, tiny_model_path: str, format_: ExportFormat
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    ran = run("export", template, out, "--format", format_)
    assert (ran.code, ran.out, ran.err) == (0, f"Wrote 30 documents to {out}.\n", "")
    assert list(read_documents(out)) == DOCUMENTS
    assert run("index", out, "--out", again, "--model", tiny_model_path).code == 0
    assert list(Index.open(again).documents()) == list(Index.open(template).documents())
    ran = run("export", template, out, "--format", format_)
    assert (ran.code, ran.err) == (2, f"Error: {out} is there already; choose another folder.\n")
    few = run("export", template, tmp_path / "few", "--where", "n<3", "--format", format_, "--json")
    assert few.json == {"documents": 3, "queries": 0, "judgements": 0}


def test_the_command_with_a_collection(
    tmp_path: Path, dataset: Dataset, run: Run, tiny_model_path: str
) -> None:
    collection, index = tmp_path / "collection", tmp_path / "index"
    Index.create(index, model=tiny_model_path).add(dataset.documents())
    for option in ("--dataset", "--split"):
        ran = run("export", index, tmp_path / "out", option, "dev")
        assert "--dataset and --split go together" in ran.err
    options: list[Any] = ["--dataset", collection, "--split", "dev", "--format", "parquet"]
    ran = run("export", index, tmp_path / "out", *options)
    assert ran.out.startswith("Wrote 12 documents, 12 queries and 12 judgements to ")
    evaluated = [
        run("evaluate", folder, "--split", "dev", "--index", index, "--json").json
        for folder in (collection, tmp_path / "out")
    ]
    assert evaluated[0]["figures"] == evaluated[1]["figures"]


def test_the_mode_is_the_usual_one(tmp_path: Path) -> None:
    export(DOCUMENTS, tmp_path / "out")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert os.access(tmp_path / "out" / "corpus.jsonl", os.R_OK)
