"""Test collections: each format as people have it, and each way in which one can be broken."""

from __future__ import annotations

import builtins
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write files into a folder; a list is JSON lines, and None removes a file."""

    def call(files: dict[str, Any], name: str = "set") -> Path:
        folder = tmp_path / name
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.unlink()
                continue
            if isinstance(content, list):
                content = "".join(json.dumps(one) + "\n" for one in content)
            raw = content if isinstance(content, bytes) else content.encode()
            target.write_bytes(gzip.compress(raw) if path.endswith(".gz") else raw)
        return folder

    return call


def refused(folder: Path | str, split: str, *words: str) -> None:
    """Check that the error is one sentence that says where, and ends."""
    with pytest.raises(CorpusError) as raised:
        load_dataset(str(folder), split)
    message = str(raised.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message


def content(dataset: Dataset) -> tuple[list[Document], list[Query], list[Qrel]]:
    return list(dataset.documents()), list(dataset.queries), list(dataset.qrels)


# --- BEIR

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


def gzipped(files: dict[str, Any]) -> dict[str, Any]:
    """Give every file the name that makes the fixture gzip it."""
    return {f"{name}.gz": content for name, content in files.items()}


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


# --- MS MARCO

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
    assert [(one.id, one.title, one.text) for one in documents] == [
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


# --- DPR

ENTRIES: list[dict[str, Any]] = [
    {
        "dataset": "nq_dev_psgs_w100",
        "question": "which river?",
        "answers": ["Nile", "the Nile"],
        "positive_ctxs": [
            {"title": "Nile", "text": "A river.", "score": 1000, "passage_id": "1"},
            {"title": "City", "text": "A city.", "score": 10, "passage_id": "2"},
        ],
        "negative_ctxs": [],
        "hard_negative_ctxs": [{"title": "City", "text": "A city.", "passage_id": "2"}],
    },
    {"question": "not judged", "answers": ["Cairo"], "positive_ctxs": []},
    {"question": "which city?", "answers": [], "positive_ctxs": [{"psg_id": 2}]},
]
DPR: dict[str, Any] = {
    "psgs_w100.tsv": "id\ttext\ttitle\n1\tA river.\tNile\n2\tA city.\tCity\n",
    "nq-dev.json": json.dumps(ENTRIES),
    "nq-train.json": json.dumps(ENTRIES[2:]),
}


def test_dpr(make: Make) -> None:
    folder = make(DPR)
    dataset = load_dataset(str(folder), "dev")
    assert dataset.source == str(folder / "psgs_w100.tsv")
    assert content(dataset) == (
        [Document("1", "A river.", "Nile"), Document("2", "A city.", "City")],
        [
            Query("0", "which river?", ("Nile", "the Nile")),
            Query("1", "not judged", ("Cairo",)),  # the answer judges it
            Query("2", "which city?"),
        ],
        [Qrel("0", "1", 1), Qrel("0", "2", 1), Qrel("2", "2", 1)],
    )
    assert len(load_dataset(str(folder), "train").queries) == 1
    assert len(load_dataset(str(folder), "nq-dev").queries) == 3


def test_dpr_of_several_sets(make: Make) -> None:
    make(DPR)
    folder = make({"trivia-dev.json": b"\xef\xbb\xbf" + json.dumps(ENTRIES[1:]).encode()})
    refused(folder, "dev", "*dev*.json: 2 files fit")
    refused(folder, "test", "*test*.json or *test*.csv: there is no such file")
    assert len(load_dataset(str(folder), "trivia-dev").queries) == 2


def test_dpr_gzipped(make: Make) -> None:
    plain = load_dataset(str(make(DPR, "plain")), "dev")
    folder = make(gzipped(DPR), "gzipped")
    dataset = load_dataset(str(folder), "dev")
    assert content(dataset) == content(plain)
    assert dataset.source == str(folder / "psgs_w100.tsv.gz")
    for name in ("psgs_w100.tsv.gz", "nq-dev.json.gz"):
        broken = make(gzipped(DPR), f"broken {name}")
        (broken / name).write_bytes((broken / name).read_bytes()[:-9])
        with pytest.raises(CorpusError, match=rf"{name}.*: the gzip file is damaged or cut short"):
            list(load_dataset(str(broken), "dev").documents())


# As csv.writer writes them: a field with double quotes is quoted, and they are doubled.
ANSWERED = """who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']
what's "his" name?\t"['O\\'Neill', ""O'Neill"", '""Jack""']"
"a ""quoted"" question"\t['a\\tb', 'C:\\dir']
"""
ANSWERED_QUERIES = [
    Query("0", "who got the first nobel prize in physics", ("Wilhelm Conrad Röntgen",)),
    Query("1", 'what\'s "his" name?', ("O'Neill", "O'Neill", '"Jack"')),
    Query("2", 'a "quoted" question', ("a\tb", "C:\\dir")),
]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("split", ["test", "nq-test", "nq-test.qa"])
def test_dpr_answers_without_passages(make: Make, suffix: str, split: str) -> None:
    folder = make({"psgs_w100.tsv": DPR["psgs_w100.tsv"], f"nq-test.qa.csv{suffix}": ANSWERED})
    documents, queries, qrels = content(load_dataset(str(folder), split))
    assert [document.id for document in documents] == ["1", "2"]
    assert (queries, qrels) == (ANSWERED_QUERIES, [])


def test_dpr_judgements_come_before_answers_alone(make: Make) -> None:
    make(DPR)
    folder = make({"nq-dev.qa.csv": ANSWERED})
    assert len(load_dataset(str(folder), "nq-dev").qrels) == 3
    assert content(load_dataset(str(folder), "nq-dev.qa"))[1:] == (ANSWERED_QUERIES, [])
    folder = make({"trivia-test.qa.csv": ANSWERED, "nq-test.qa.csv": ANSWERED})
    refused(folder, "test", "*test*.csv: 2 files fit")


@pytest.mark.parametrize(
    "row",
    [
        "a question",
        "a question\t['a']\tmore",
        "a question\tNile",
        "a question\t'Nile'",
        "a question\t['Nile'",
        "a question\t[1869]",
        "a question\t[b'Nile']",
        "a question\t{'Nile'}",
        "a question\t[open('x')]",
        "a question\t[__import__('os').getcwd()]",
        "a question\t['a' * 9]",
        pytest.param("a question\t" + "[" * 100_000, id="brackets"),
        pytest.param("a question\t[" + "-" * 100_000 + "1]", id="signs"),
        pytest.param("a question\t[" + "'a'+" * 100_000 + "'a']", id="sums"),
        "a question\t['\0']",
    ],
)
def test_what_is_no_row_of_answers(make: Make, row: str) -> None:
    make(DPR)
    folder = make({"nq-test.qa.csv": f"{ANSWERED}{row}\n"})
    refused(folder, "test", "nq-test.qa.csv line 4: this is not DPR's format", "a list of answers")


def test_answers_that_judge_nothing(make: Make) -> None:
    make(DPR)
    refused(make({"nq-test.qa.csv": "a question\t[]\n"}), "test", "no judged queries")
    refused(make({"nq-test.qa.csv": " \t['Nile']\n"}), "test", "'0'", "no text")
    refused(make({"nq-test.qa.csv": "a\t\"['Nile']\n"}), "test", "line 1: not valid CSV")


def entry(**changes: Any) -> str:
    return json.dumps([ENTRIES[0], {**ENTRIES[1], **changes}])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "nq-dev.json: "),
        ('[{"question": ', "nq-dev.json: "),
        ('{"question": "?", "answers": [], "positive_ctxs": []}', "nq-dev.json: "),
        ("3", "nq-dev.json: "),
        ("[" * 100_000, "nq-dev.json: "),
        ('[["question", "answers"]]', "nq-dev.json entry 0: "),
        (json.dumps([ENTRIES[0], {"question": "?", "answers": []}]), "nq-dev.json entry 1: "),
        (entry(question=None), "nq-dev.json entry 1: "),
        (entry(answers="Cairo"), "nq-dev.json entry 1: "),  # not five answers of a letter each
        (entry(answers=[1869]), "nq-dev.json entry 1: "),
        (entry(answers=None), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=None), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=["1"]), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=[{"title": "no id"}]), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=[{"passage_id": None}]), "nq-dev.json entry 1: "),
    ],
)
def test_what_is_not_dpr(make: Make, text: str, where: str) -> None:
    make(DPR)
    refused(make({"nq-dev.json": text}), "dev", where, "not DPR's format", '"positive_ctxs"')


def test_other_broken_dpr_files(make: Make) -> None:
    make(DPR)
    refused(make({"nq-dev.json": entry(question=" ")}), "dev", "1 judged", "'1'")
    refused(make({"nq-dev.json": b'["caf\xe9"]'}), "dev", "nq-dev.json line 1: not valid UTF-8")
    refused(make({"nq-dev.json": "[]"}), "dev", "no judged queries")


# --- bundled


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


# --- ir_datasets


class Text(NamedTuple):
    """A document of one field, as ir_datasets has them."""

    doc_id: str
    text: str

    def default_text(self) -> str:
        return self.text


class Page(NamedTuple):
    """A document of several fields; `default_text` joins them."""

    doc_id: str
    url: str
    title: str | None
    body: str

    def default_text(self) -> str:
        return f"{self.title} {self.body}"


class Abstract(NamedTuple):
    """A document whose fields have other names."""

    doc_id: str
    abstract: str

    def default_text(self) -> str:
        return self.abstract


class Topic(NamedTuple):
    """A query."""

    query_id: str
    title: str

    def default_text(self) -> str:
        return self.title


class Judgement(NamedTuple):
    """A judgement, with one field more than is needed."""

    query_id: str
    doc_id: str
    relevance: int
    iteration: str


class Stub:
    """What ir_datasets.load returns."""

    has = frozenset({"docs", "queries", "qrels"})
    reads = 0

    def has_docs(self) -> bool:
        return "docs" in self.has

    def has_queries(self) -> bool:
        return "queries" in self.has

    def has_qrels(self) -> bool:
        return "qrels" in self.has

    def docs_iter(self) -> Iterator[Any]:
        self.reads += 1
        yield Text("a", "plain")
        yield Page("b", "http://b", "Title", "body")
        yield Page("c", "http://c", None, "untitled")
        yield Abstract("d", "abstract")

    def queries_iter(self) -> Iterator[Topic]:
        yield Topic("1", "which?")
        yield Topic("2", "unjudged")

    def qrels_iter(self) -> Iterator[Judgement]:
        yield Judgement("1", "b", 2, "0")
        yield Judgement("1", "a", 0, "0")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A module in the place of ir_datasets that knows one dataset, "here/dev"."""
    known = {"here/dev": Stub()}
    module: Any = ModuleType("ir_datasets")
    module.load = known.__getitem__
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    return known["here/dev"]


def test_ir_datasets(stub: Stub) -> None:
    dataset = load_dataset("irds:here/dev", "dev")
    assert (dataset.name, dataset.source) == ("here/dev", "")
    assert stub.reads == 0, "documents are only read when they are asked for"
    documents = list(dataset.documents())
    assert documents == [
        Document("a", "plain"),
        Document("b", "body", "Title"),
        Document("c", "untitled"),
        Document("d", "abstract"),
    ]
    assert {document.origin for document in documents} == {"irds:here/dev"}
    assert list(dataset.documents()) == documents
    assert dataset.queries == (Query("1", "which?"),)
    assert dataset.qrels == (Qrel("1", "b", 2), Qrel("1", "a", 0))


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Make the real ir_datasets know the dataset "pseudoquery-test", and its parts, from files."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    import ir_datasets
    from ir_datasets.formats import GenericDoc, TsvDocs
    from ir_datasets.util import LocalDownload

    class TitledDoc(NamedTuple):
        """A document of several fields, with what all of ir_datasets' documents have."""

        doc_id: str
        url: str
        title: str
        body: str

        def default_text(self) -> str:
            return f"{self.title} {self.body}"

    files = {
        "docs.tsv": "d1\tA river.\nd2\tA city.\n",
        "pages.tsv": "p1\thttp://x\tNile\tA river.\n",
        "queries.tsv": "q1\twhich river?\nq2\tunjudged\n",
        "qrels.trec": "q1 0 d1 2\nq1 0 d2 0\n",
        "page-qrels.trec": "q1 0 p1 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    docs, queries = tmp_path / "docs.tsv", tmp_path / "queries.tsv"
    create = ir_datasets.create_dataset
    pages = TsvDocs(LocalDownload(tmp_path / "pages.tsv"), doc_cls=TitledDoc)
    asked = create(None, str(queries), str(tmp_path / "page-qrels.trec"))
    made = {
        "pseudoquery-test": create(str(docs)),
        "pseudoquery-test/dev": create(str(docs), str(queries), str(tmp_path / "qrels.trec")),
        "pseudoquery-test/asked": create(str(docs), str(queries)),
        "pseudoquery-test/pages": ir_datasets.Dataset(pages, asked),
    }
    assert GenericDoc._fields == Text._fields, "so the stub above is like the real one"
    for name, dataset in made.items():
        ir_datasets.registry.register(name, dataset)
    yield tmp_path
    for name in made:
        del ir_datasets.registry._registered[name]


def test_the_real_ir_datasets(real: Path) -> None:
    dataset = load_dataset("irds:pseudoquery-test/dev", "dev")
    assert (dataset.name, dataset.source) == ("pseudoquery-test/dev", "")
    documents = [Document("d1", "A river."), Document("d2", "A city.")]
    qrels = [Qrel("q1", "d1", 2), Qrel("q1", "d2", 0)]
    assert content(dataset) == (documents, [Query("q1", "which river?")], qrels)
    assert list(dataset.documents()) == documents, "documents can be asked for again"
    pages = load_dataset("irds:pseudoquery-test/pages", "dev")
    assert list(pages.documents()) == [Document("p1", "A river.", "Nile")]
    assert pages.qrels == (Qrel("q1", "p1", 1),)


def test_what_the_real_ir_datasets_lacks(real: Path) -> None:
    refused("irds:pseudoquery-test", "dev", "'pseudoquery-test' has no queries")
    refused("irds:pseudoquery-test/asked", "dev", "has no judgements")
    refused("irds:pseudoquery-test/never", "dev", "ir_datasets has no dataset")
    (real / "qrels.trec").write_text("q3 0 d1 1\n")
    refused("irds:pseudoquery-test/dev", "dev", "judges no query")


@pytest.mark.parametrize("name", ["", "there/dev"])
def test_ir_datasets_does_not_know_it(stub: Stub, name: str) -> None:
    refused(f"irds:{name}", "dev", f"ir_datasets has no dataset {name!r}")


@pytest.mark.parametrize(
    ("part", "word"), [("docs", "documents"), ("queries", "queries"), ("qrels", "judgements")]
)
def test_ir_datasets_has_only_a_part(stub: Stub, part: str, word: str) -> None:
    stub.has = Stub.has - {part}
    refused("irds:here/dev", "dev", f"'here/dev' has no {word}")


def test_ir_datasets_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ir_datasets":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CorpusError) as raised:
        load_dataset("irds:here/dev", "dev")
    assert str(raised.value).endswith("run: pip install 'pseudoquery[ir-datasets]'")


def test_dpr_passages_are_quoted_as_in_a_csv_file(tmp_path: Path) -> None:
    folder = tmp_path / "dpr"
    folder.mkdir()
    (folder / "psgs_w100.tsv").write_text(
        'id\ttext\ttitle\n1\t"He said ""no"" and\tleft."\tA "title"\n2\tplain\tB\n'
    )
    (folder / "nq-dev.json").write_text(
        json.dumps([{"question": "q", "answers": ["no"], "positive_ctxs": [{"passage_id": "1"}]}])
    )
    dataset = load_dataset(str(folder), "dev")
    texts = [(one.id, one.text, one.title) for one in dataset.documents()]
    assert texts == [("1", 'He said "no" and\tleft.', 'A "title"'), ("2", "plain", "B")]
    (folder / "psgs_w100.tsv").write_text("1\tno title\n")
    with pytest.raises(CorpusError, match="should have an id, a text and a title"):
        list(dataset.documents())


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
