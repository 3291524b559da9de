"""Test collections: each format as people have it, and each way in which one can be broken."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query
from tests.support.dataset_folders import Make, content, gzipped, refused

BEIR: dict[str, Any] = {
    "corpus.jsonl": [
        {"_id": "d1", "title": "Nile", "text": "A river."},
        {"_id": "d2", "text": "A city."},
    ],
    "queries.jsonl": [
        {"_id": "q1", "text": "which river?", "metadata": {"answers": ["Nile", "the Nile"]}},
        {"_id": "q2", "text": "which city?"},
        {"_id": "q3", "text": "of another split"},
    ],
    "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td2\t1\nq1\td2\t0\n",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq3\td1\t1\n",
}


BEIR_CONTENT = (
    [Document("d1", "A river.", "Nile"), Document("d2", "A city.")],
    [Query("q1", "which river?", ("Nile", "the Nile")), Query("q2", "which city?")],
    [Qrel("q1", "d1", 2), Qrel("q2", "d2", 1), Qrel("q1", "d2", 0)],
)


def test_beir(make: Make) -> None:
    folder = make(BEIR)
    dataset = load_dataset(str(folder), "dev")
    assert (dataset.name, dataset.source) == ("set", str(folder / "corpus.jsonl"))
    assert content(dataset) == BEIR_CONTENT
    assert list(dataset.documents()) == BEIR_CONTENT[0], "documents can be asked for again"
    other = load_dataset(str(folder), "test")
    assert [query.id for query in other.queries] == ["q3"]
    assert other.qrels == (Qrel("q3", "d1", 1),)


def test_beir_gzipped(make: Make) -> None:
    dataset = load_dataset(str(make(gzipped(BEIR))), "dev")
    assert content(dataset) == BEIR_CONTENT
    assert dataset.source.endswith("corpus.jsonl.gz")


def test_here_has_a_name(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(BEIR))
    dataset = load_dataset(".", "dev")
    assert dataset.name == "set"
    assert content(dataset) == BEIR_CONTENT


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"qrels/dev.tsv": None}, ["dev.tsv: there is no such file", "split"]),
        ({"queries.jsonl": None}, ["queries.jsonl", "can't be read"]),
        ({"queries.jsonl": [{"_id": "q1", "text": "?"}]}, ["1 judged", "'q2'", "no text"]),
        (
            {"queries.jsonl": [{"_id": "q1", "text": " "}, {"_id": "q2", "text": "?"}]},
            ["'q1'", "no text"],
        ),
        ({"queries.jsonl": '{"_id": "q1", "text": "?"}\n{"_id"\n'}, ["queries.jsonl line 2"]),
        (
            {"queries.jsonl": [{"_id": "q1", "text": "?", "answers": "Nile"}]},
            ["queries.jsonl line 1", '"answers"'],
        ),
        ({"qrels/dev.tsv": "q1 0 d1 1\nq2 0 d2 much\n"}, ["dev.tsv line 2", "'much'"]),
        ({"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td1\n"}, ["dev.tsv line 2"]),
        ({"qrels/dev.tsv": "query-id\tcorpus-id\tscore\n"}, ["set: ", "no judged queries"]),
    ],
)
def test_a_broken_beir_folder(make: Make, files: dict[str, Any], words: list[str]) -> None:
    make(BEIR)
    refused(make(files), "dev", *words)


def test_a_broken_corpus_is_said_when_it_is_read(make: Make) -> None:
    make(BEIR)
    dataset = load_dataset(
        str(make({"corpus.jsonl": '{"_id": "d1", "text": "fine"}\nno\n'})), "dev"
    )
    with pytest.raises(CorpusError, match=r"corpus\.jsonl line 2: not valid JSON"):
        list(dataset.documents())


def test_there_are_no_judgements_at_all(make: Make) -> None:
    files = {name: BEIR[name] for name in ("corpus.jsonl", "queries.jsonl")}
    refused(make(files), "dev", "qrels", "there is no such file")


@pytest.mark.parametrize("split", ["", "*", "d?v", "[d]ev", "**", "../qrels/dev", "/dev", "a/b"])
def test_a_split_is_a_name(make: Make, split: str) -> None:
    refused(make(BEIR), split, f"{split!r} is not the name of a split")


@pytest.mark.parametrize("name", ["", "missing", "squad", "\0", "corpus.jsonl"])
def test_no_collection(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make({"corpus.tsv": "d1\ttext\n"})
    refused(name, "dev", "is not a test collection", "corpus.jsonl", "irds:", "squad-dev")
    refused("set", "dev", "set is not a test collection")


PASSAGES: dict[str, Any] = {
    "collection.tsv": "0\tA river.\n1\tA city.\n",
    "queries.dev.small.tsv": "10\twhich river?\n11\tunjudged\n12\twhich city\u2028is\x85old?\n",
    "qrels.dev.small.tsv": "10\t0\t0\t1\n12\t0\t1\t1\n",
}


DOCUMENTS: dict[str, Any] = {
    "msmarco-docs.tsv": "D1\thttp://x\tNile\tA river.\nD2\thttp://y\t\tA city.\n",
    "msmarco-docdev-queries.tsv": "10\twhich river?\n",
    "msmarco-docdev-qrels.tsv": "10 0 D1 1\n",
    "msmarco-doctrain-queries.tsv": "20\twhich city?\n",
    "msmarco-doctrain-qrels.tsv": "20 0 D2 1\n",
}


@pytest.mark.parametrize("split", ["dev", "dev.small"])
def test_ms_marco_passages(make: Make, split: str) -> None:
    folder = make(PASSAGES)
    dataset = load_dataset(str(folder), split)
    assert dataset.source == str(folder / "collection.tsv")
    assert content(dataset) == (
        [Document("0", "A river."), Document("1", "A city.")],
        # What only Python takes for line ends is a part of the question.
        [Query("10", "which river?"), Query("12", "which city\u2028is\x85old?")],
        [Qrel("10", "0", 1), Qrel("12", "1", 1)],
    )


def test_ms_marco_documents(make: Make) -> None:
    dataset = load_dataset(str(make(DOCUMENTS)), "dev")
    documents, queries, qrels = content(dataset)
    assert [(document.id, document.title, document.text) for document in documents] == [
        ("D1", "Nile", "A river."),
        ("D2", "", "A city."),
    ]
    assert documents[0].metadata == {"url": "http://x"}
    assert (queries, qrels) == ([Query("10", "which river?")], [Qrel("10", "D1", 1)])
    assert load_dataset(str(make({})), "train").queries == (Query("20", "which city?"),)


def test_windows_lines_a_byte_order_mark_and_blank_lines(make: Make) -> None:
    make(DOCUMENTS)
    files = {"msmarco-docdev-queries.tsv": b"\xef\xbb\xbf10\twhich\triver?\r\n\r\n"}
    assert load_dataset(str(make(files)), "dev").queries == (Query("10", "which\triver?"),)


def test_the_very_name_is_no_guess_and_one_of_several_is(make: Make) -> None:
    make(PASSAGES)
    folder = make({"queries.dev.large.tsv": "10\tof another size\n"})
    refused(folder, "dev", "queries.dev*.tsv", "2 files fit; check the name of the split")
    assert load_dataset(str(folder), "dev.small").queries[0].text == "which river?"
    make({"queries.dev.tsv": "10\tthe whole\n", "qrels.dev.tsv": "10\t0\t1\t1\n"})
    assert content(load_dataset(str(folder), "dev"))[1:] == (
        [Query("10", "the whole")],
        [Qrel("10", "1", 1)],
    )


@pytest.mark.parametrize(
    ("files", "corpus"), [(PASSAGES, "collection.tsv"), (DOCUMENTS, "msmarco-docs.tsv")]
)
def test_ms_marco_gzipped(make: Make, files: dict[str, Any], corpus: str) -> None:
    plain = load_dataset(str(make(files, "plain")), "dev")
    folder = make(gzipped(files), "gzipped")
    dataset = load_dataset(str(folder), "dev")
    assert content(dataset) == content(plain)
    assert dataset.source == str(folder / f"{corpus}.gz")
    make(files, "gzipped")
    both = load_dataset(str(folder), "dev")
    assert both.source == str(folder / corpus), "a file and its gzipped form are one"
    assert content(both) == content(plain)


@pytest.mark.parametrize("name", ["collection.tsv", "queries.dev.small.tsv", "qrels.dev.small.tsv"])
@pytest.mark.parametrize("damage", ["cut short", "flipped", "not gzip"])
def test_a_damaged_gzip_file(make: Make, name: str, damage: str) -> None:
    path = make(gzipped(PASSAGES)) / f"{name}.gz"
    raw = gzip.compress(PASSAGES[name].encode())
    path.write_bytes(
        {
            "cut short": raw[:-12],
            "flipped": raw[:-8] + bytes([raw[-8] ^ 1]) + raw[-7:],  # in the checksum
            "not gzip": PASSAGES[name].encode(),
        }[damage]
    )
    with pytest.raises(CorpusError) as raised:
        list(load_dataset(str(path.parent), "dev").documents())
    message = str(raised.value)
    assert f"{name}.gz" in message
    assert "the gzip file is damaged or cut short" in message
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("queries", None, ["queries.dev*.tsv: there is no such file"]),
        ("qrels", None, ["qrels.dev*.tsv: there is no such file"]),
        ("queries", "10\twhich?\n12 which?\n", ["queries.dev.small.tsv line 2", "a tab"]),
        ("queries", "10\twhich?\n12\t \n", ["queries.dev.small.tsv line 2"]),
        ("queries", "\twhich?\n", ["queries.dev.small.tsv line 1"]),
        ("queries", "10\twhich?\n", ["1 judged", "'12'"]),
        ("queries", b"10\tcaf\xe9?\n", ["queries.dev.small.tsv line 1: not valid UTF-8"]),
        ("qrels", "10\t0\n", ["qrels.dev.small.tsv line 1"]),
    ],
)
def test_broken_ms_marco_files(make: Make, name: str, text: Any, words: list[str]) -> None:
    make(PASSAGES)
    refused(make({f"{name}.dev.small.tsv": text}), "dev", *words)


def test_a_folder_in_place_of_a_file(make: Make) -> None:
    make(PASSAGES)
    make({"queries.dev.small.tsv": None, "queries.dev.small.tsv/x": ""})
    refused(make({}), "dev", "queries.dev.small.tsv: can't be read")


def test_the_bundled_collection() -> None:
    dataset = load_dataset("squad-dev", "dev")
    assert dataset.name == "squad-dev"
    assert Path(dataset.source).is_file()
    assert len(dataset.queries) == len({query.id for query in dataset.queries}) == 1000
    assert all(query.answers for query in dataset.queries)
    ids = [document.id for document in dataset.documents()]
    assert len(ids) == len(set(ids)) == 535
    assert {qrel.document_id for qrel in dataset.qrels} <= set(ids)
    refused("squad-dev", "test", "there is no such file")


def test_parquet_files(make: Make) -> None:
    """Whole ones are read in test_export.py, as they are written."""
    folder = make({"corpus.parquet": b"", "queries.parquet": b""})
    refused(folder, "dev", "dev.parquet: there is no such file")
    (folder / "qrels").mkdir()
    for row in ({"query-id": "q", "score": 1}, {"query-id": "q", "corpus-id": "d", "score": None}):
        pq.write_table(pa.Table.from_pylist([row]), folder / "qrels" / "dev.parquet")
        refused(folder, "dev", "dev.parquet row 1: a judgement should have the columns query-id")
    right = {"query-id": "q", "corpus-id": "d", "score": 1}
    pq.write_table(pa.Table.from_pylist([right]), folder / "qrels" / "dev.parquet")
    refused(folder, "dev", "queries.parquet: can't be read")
