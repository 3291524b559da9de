"""Test collections of ir_datasets: a stub of the library, and the library itself."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query
from tests.support.dataset_folders import content, refused


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
    judged = create(None, str(queries), str(tmp_path / "page-qrels.trec"))
    made = {
        "pseudoquery-test": create(str(docs)),
        "pseudoquery-test/dev": create(str(docs), str(queries), str(tmp_path / "qrels.trec")),
        "pseudoquery-test/asked": create(str(docs), str(queries)),
        "pseudoquery-test/pages": ir_datasets.Dataset(pages, judged),
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
