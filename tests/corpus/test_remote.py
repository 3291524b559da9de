"""Corpora at an address: a server on loopback, and files by their URL."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pseudoquery.corpus.documents import list_shards, read_documents
from pseudoquery.corpus.huggingface import import_arrow
from pseudoquery.errors import CorpusError
from tests.support.command import Run, write

ROWS = [{"id": f"d{number}", "text": f"text {number}", "year": number} for number in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same rows in three files, of three kinds."""
    parent = write(tmp_path / "there" / "a.jsonl", *ROWS[:2]).parent
    packed = "".join(f"{json.dumps(row)}\n" for row in ROWS[2:4])
    (parent / "b.jsonl.gz").write_bytes(gzip.compress(packed.encode()))
    return parent


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_folder_of_lines_is_read_file_by_file(folder: Path) -> None:
    expected = [(row["id"], row["text"]) for row in ROWS[:4]]
    for source in (str(folder), folder.as_uri()):
        documents = list(read_documents(source))
        assert [(one.id, one.text) for one in documents] == expected
        assert documents[3].origin.endswith("b.jsonl.gz line 2")
        assert [Path(name).name for name in list_shards(source)] == ["a.jsonl", "b.jsonl.gz"]


def test_a_table_at_an_address(folder: Path) -> None:
    table = import_arrow("pyarrow").Table.from_pylist(ROWS[4:])
    import_arrow("pyarrow.parquet").write_table(table, folder / "c.parquet")
    documents = list(read_documents(folder.as_uri()))
    assert [one.id for one in documents] == [row["id"] for row in ROWS]
    assert documents[4].metadata == {"year": 4}


def test_a_file_on_a_server(server: str, run: Run, tmp_path: Path, tiny_model_path: str) -> None:
    documents = list(read_documents(f"{server}/b.jsonl.gz"))
    assert [one.id for one in documents] == ["d2", "d3"]
    made = run("index", f"{server}/a.jsonl", "--out", tmp_path / "index", "--json",
               "--model", tiny_model_path)  # fmt: skip
    assert (made.code, made.json["added"]) == (0, 2), made.err


def test_what_is_not_there(server: str, tmp_path: Path) -> None:
    for source, said in (
        (f"{server}/no.jsonl", "no.jsonl: can't be read"),
        ((tmp_path / "no.jsonl").as_uri(), "no.jsonl: can't be read"),
        ("nonsense://somewhere/a.jsonl", "nonsense://somewhere/a.jsonl: can't be read"),
    ):
        with pytest.raises(CorpusError, match=said):
            list(read_documents(source))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"the folder has no \.jsonl or"):
        list_shards((tmp_path / "empty").as_uri())
