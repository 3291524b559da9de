"""Hugging Face datasets become documents: saved, as Parquet files, and in the Hub's layout."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pseudoquery.corpus.documents import read_documents
from pseudoquery.errors import CorpusError
from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.conftest import TINY_TOKENS
from tests.support.command import Run

ROWS: list[dict[str, Any]] = [
    {"id": "a", "title": "T", "text": "moon", "year": 2020, "tags": ["x", "y"]},
    {"id": "b", "title": None, "text": "sun\nand stars", "year": None, "tags": []},
]
DOCUMENTS = [
    Document("a", "moon", "T", {"year": 2020, "tags": ["x", "y"]}),
    Document("b", "sun\nand stars", "", {"year": None, "tags": []}),
]


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def read(source: str | Path, **columns: str) -> list[Document]:
    return list(read_documents(source, columns=columns))


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    return write_parquet(tmp_path / "docs.parquet", ROWS)


def test_a_parquet_file(parquet: Path) -> None:
    assert read(parquet) == DOCUMENTS
    assert [document.origin for document in read(parquet)] == [f"{parquet} row {n}" for n in (1, 2)]


def test_rows_beyond_one_batch(tmp_path: Path) -> None:
    rows = [{"id": str(number), "text": "x"} for number in range(1000)]
    documents = read(write_parquet(tmp_path / "many.parquet", rows))
    assert [document.id for document in documents] == [row["id"] for row in rows]
    assert documents[-1].origin.endswith("row 1000")


def test_a_saved_dataset(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_list(ROWS)
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert read(tmp_path / "saved") == DOCUMENTS
    datasets.DatasetDict({"train": dataset}).save_to_disk(str(tmp_path / "one"))
    assert read(tmp_path / "one") == DOCUMENTS
    several = datasets.DatasetDict({"train": dataset, "test": dataset.select([1])})
    several.save_to_disk(str(tmp_path / "two"))
    assert read(tmp_path / "two" / "test") == DOCUMENTS[1:]
    with pytest.raises(
        CorpusError, match=r"two has the splits train, test; choose one with .*two/SPLIT"
    ):
        read(tmp_path / "two")
    several["corpus"] = dataset
    several.save_to_disk(str(tmp_path / "three"))
    assert read(tmp_path / "three") == DOCUMENTS


def test_a_folder_as_on_the_hub(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000.parquet", ROWS[:1])
    (tmp_path / "README.md").write_text("# A dataset\n")
    assert read(tmp_path) == read(f"hf:{tmp_path}") == DOCUMENTS[:1]
    assert read(f"hf:{tmp_path}")[0].origin == f"hf:{tmp_path} row 1"
    write_parquet(tmp_path / "data" / "test-00000.parquet", ROWS[1:])
    assert read(f"hf:{tmp_path}::test") == read(f"hf:{tmp_path}:default:test") == DOCUMENTS[1:]
    for source in (tmp_path, f"hf:{tmp_path}", f"hf:{tmp_path}::dev"):
        with pytest.raises(
            CorpusError, match=r"has the splits train, test; choose one with hf:.*:default:SPLIT"
        ):
            read(source)
    with pytest.raises(CorpusError, match="has the configurations default; choose one"):
        read(f"hf:{tmp_path}:other")


def test_the_documents_of_a_test_collection(tmp_path: Path) -> None:
    write_parquet(tmp_path / "corpus" / "part.parquet", ROWS)
    write_parquet(tmp_path / "queries" / "part.parquet", [{"id": "q", "text": "moon"}])
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n"
        "- {config_name: queries, data_files: queries/*.parquet}\n"
        "- {config_name: corpus, data_files: corpus/*.parquet}\n---\n"
    )
    assert read(tmp_path) == DOCUMENTS


def test_a_folder_of_texts_stays_one(tmp_path: Path, parquet: Path) -> None:
    (tmp_path / "a.txt").write_text("moon")
    assert [document.id for document in read(tmp_path)] == ["a.txt"]
    (tmp_path / "corpus.jsonl").write_text('{"_id": "beir", "text": "x"}\n')
    assert [document.id for document in read(tmp_path)] == ["beir"]


def test_columns(tmp_path: Path) -> None:
    rows = [{"docid": 7, "passage": "moon", "head": "T", "text": "other", "title": "old"}]
    path = write_parquet(tmp_path / "docs.parquet", rows)
    assert read(path, id="docid", text="passage", title="head") == [
        Document("7", "moon", "T", {"text": "other", "title": "old"})
    ]
    assert read(path, id="docid", text="title") == [
        Document("7", "old", "", {"passage": "moon", "head": "T", "text": "other"})
    ]
    with pytest.raises(
        CorpusError,
        match=r"row 1: there is no column 'id' for the id, only 'docid', .*--column id=NAME",
    ):
        read(path)
    with pytest.raises(CorpusError, match="there is no column 'x' for the title"):
        read(path, id="docid", title="x")


def test_columns_only_where_they_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": "a", "text": "x"}\n')
    with pytest.raises(CorpusError, match=r"docs\.jsonl: the columns of this file can't be chosen"):
        read(tmp_path / "docs.jsonl", text="x")


def test_types_that_json_has_not(tmp_path: Path) -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    row = {
        "id": 5,
        "text": "x",
        "day": moment.date(),
        "when": [{"at": moment}],
        "price": Decimal("1.20"),
        "span": datetime.timedelta(seconds=1),
    }
    (document,) = read(write_parquet(tmp_path / "docs.parquet", [row]))
    assert document == Document(
        "5",
        "x",
        metadata={
            "day": "2020-01-02",
            "when": [{"at": moment.isoformat()}],
            "price": "1.20",
            "span": "0:00:01",
        },
    )
    bad = write_parquet(tmp_path / "bad.parquet", [{"id": "a", "text": "x", "image": b"\0"}])
    with pytest.raises(CorpusError, match=r"row 1: the metadata under 'image' .*type bytes"):
        read(bad)


@pytest.mark.parametrize("metadata", [{"n": 1}, json.dumps({"n": 1})])
def test_metadata_as_an_object_or_as_text(tmp_path: Path, metadata: Any) -> None:
    rows = [{"id": "a", "text": "x", "metadata": metadata, "m": 2}, {"id": "b", "text": "x"}]
    documents = read(write_parquet(tmp_path / "docs.parquet", rows))
    assert [dict(document.metadata) for document in documents] == [{"m": 2, "n": 1}, {"m": None}]


@pytest.mark.parametrize("metadata", ["text", "[1]", "{", '{"a": NaN}'])
def test_metadata_that_are_no_object(tmp_path: Path, metadata: str) -> None:
    path = write_parquet(
        tmp_path / "docs.parquet",
        [{"id": "a", "text": "x", "metadata": metadata}, {"id": "b", "text": "x"}],
    )
    with pytest.raises(CorpusError, match=r'row 1: "metadata" is .*; it must be an object'):
        read(path)
    errors: list[CorpusError] = []
    documents = list(read_documents(path, on_bad=errors.append))
    assert [document.id for document in documents] == ["b"]
    assert len(errors) == 1
    assert read(path, title="metadata")[0].title == metadata


def test_what_can_not_be_read(tmp_path: Path, parquet: Path) -> None:
    content = parquet.read_bytes()
    parquet.write_bytes(content[: len(content) // 2])
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    sources: list[str | Path] = [parquet, tmp_path / "saved", f"hf:{tmp_path / 'none'}"]
    for source in sources:
        with pytest.raises(CorpusError) as raised:
            read(source)
        assert "can't be read as a Hugging Face dataset" in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(CorpusError, match="No such file"):
        read(tmp_path / "none.parquet")


def test_without_the_extra(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    for source in (parquet, "hf:squad"):
        with pytest.raises(CorpusError, match=r"pip install 'pseudoquery\[datasets\]'$"):
            read(source)


def test_the_command(tmp_path: Path, parquet: Path, tiny_model_path: str, run: Run) -> None:
    write_parquet(parquet, [{"id": "a", "passage": "moon " * TINY_TOKENS}])
    index = ["index", parquet, "--out", tmp_path / "index", "--model", tiny_model_path]
    assert "name the right one (--column text=NAME)" in run(*index).err
    assert not (tmp_path / "index").exists()
    for wrong in ("text", "text=", "body=passage"):
        ran = run(*index, "--column", wrong)
        assert (ran.code, f"--column {wrong} can't be used" in ran.err) == (2, True)
    assert run(*index, "--column", "text=passage", "--json").json["added"] == 1
    write_parquet(parquet, [{"n": 5, "passage": "sun"}])
    added = run("add", tmp_path / "index", parquet, "--column", "id=n", "--column", "text=passage")
    assert added.out == "Added 1 document.\n"
    assert [document.id for document in Index.open(tmp_path / "index").documents()] == ["a", "5"]


def test_an_interrupted_build_goes_on(
    tmp_path: Path, parquet: Path, tiny_model_path: str, run: Run
) -> None:
    rows = [{"n": str(number), "t": "moon"} for number in range(70)]
    write_parquet(parquet, [*rows, {"n": "", "t": "a batch later"}])
    index = ["index", f"hf:{tmp_path}", "--out", tmp_path / "index", "--model", tiny_model_path]
    columns = ["--column", "id=n", "--column", "text=t"]
    assert "row 71: the id is empty" in run(*index, *columns).err
    write_parquet(parquet, rows)
    assert "begun with other settings" in run(*index, "--column", "id=n").err
    assert "unfinished index of hf:" in run("index", parquet, *index[2:], *columns).err
    ran = run(*index, *columns, "--json").json
    assert (ran["added"], ran["unchanged"]) == (6, 64)
