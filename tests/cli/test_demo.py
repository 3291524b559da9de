"""The tour, on a small part of its own data."""

from __future__ import annotations

import io
from importlib.resources import files
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from pseudoquery.cli import demo, terminal
from pseudoquery.corpus.documents import read_documents, read_qrels, read_queries
from pseudoquery.errors import IndexFolderError
from pseudoquery.index import Index

BUNDLED = Path(str(files("pseudoquery") / "data" / "squad-dev"))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False)
    monkeypatch.setattr(demo, "console", console)
    monkeypatch.setattr(terminal, "console", console)
    return out


def small_data(folder: Path) -> Path:
    """Write the first 8 documents and 12 of the questions on them as a BEIR folder."""
    import json

    documents = list(islice(read_documents(BUNDLED), 8))
    known = {document.id for document in documents}
    qrels = [q for q in read_qrels(BUNDLED / "qrels" / "dev.tsv") if q.document_id in known][:12]
    judged = {qrel.query_id for qrel in qrels}
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": document.id, "title": document.title, "text": document.text}) + "\n"
            for document in documents
        )
    )
    (folder / "queries.jsonl").write_text(
        "".join(
            json.dumps({"_id": query.id, "text": query.text}) + "\n"
            for query in read_queries(BUNDLED)
            if query.id in judged
        )
    )
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, qrel)) for qrel in qrels)]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_bundled_data_is_whole() -> None:
    documents = {document.id for document in read_documents(BUNDLED)}
    queries = {query.id for query in read_queries(BUNDLED)}
    qrels = list(read_qrels(BUNDLED / "qrels" / "dev.tsv"))
    assert (len(documents), len(queries), len(qrels)) == (535, 1000, 1000)
    assert {qrel.query_id for qrel in qrels} == queries
    assert {qrel.document_id for qrel in qrels} <= documents
    assert "CC BY-SA 4.0" in (BUNDLED / "README.txt").read_text()


def test_the_tour(tmp_path: Path, printed: io.StringIO) -> None:
    data = small_data(tmp_path / "data")
    demo.run_demo(tmp_path / "tour", data)
    demo.run_demo(tmp_path / "tour", data)  # a second tour replaces the first
    text = printed.getvalue()
    assert all(question in text for question in demo.QUESTIONS)
    assert text.count("Proven exact") == 2 * len(demo.QUESTIONS)
    for method in ("BM25 (words)", "one vector per document", "pseudo queries", "+ BM25"):
        assert method in text
    index, single = Index.open(tmp_path / "tour"), Index.open(tmp_path / "tour-single")
    assert len(index) == len(single) == 8
    assert index.info()["vectors"] > single.info()["vectors"] == 8
    assert (index.verify(), single.verify()) == ([], [])
    # Reading once and pooling twice gives what each index would have made itself.
    documents = list(index.documents())
    assert single.add(documents).unchanged == 8
    answer = single.search("oil", top=8, exact=True)
    alone = Index.create(tmp_path / "alone", representation=single.representation)
    alone.add(documents)
    again = alone.search("oil", top=8, exact=True)
    assert [hit.id for hit in answer.hits] == [hit.id for hit in again.hits]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("years of work")
    with pytest.raises(IndexFolderError, match="is not an index; choose another --folder"):
        demo.run_demo(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "thesis.txt").read_text() == "years of work"
