"""Sources of documents: files, folders and standard input, read lazily and in little memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
import tracemalloc
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.corpus import lines
from pseudoquery.corpus.documents import read_documents
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document
from tests.support.sources import GOOD, read, read_leniently, write


def stdin_of(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BytesIO(raw), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", stream)
    return stream


def test_origin_names_the_file_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sub/d.jsonl", b"\n" + GOOD)
    monkeypatch.chdir(tmp_path)
    assert [document.origin for document in read_documents("sub/d.jsonl")] == ["sub/d.jsonl line 2"]


def test_the_documents_before_a_bad_line_arrive_before_the_error(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, "d.jsonl", GOOD * 2 + b"oops\n"))
    assert [document.id for document in islice(documents, 2)] == ["good", "good"]
    with pytest.raises(CorpusError, match="line 3"):
        next(documents)


def test_every_bad_record_is_reported_once(tmp_path: Path) -> None:
    lines = [GOOD, b"{\n", b"\xff\n", GOOD, b"[]\n", b'{"id": 1}\n']
    documents, errors = read_leniently(write(tmp_path, "d.jsonl", b"".join(lines)))
    assert len(documents) == 2
    assert [error.partition(":")[0][-6:] for error in errors] == [f"line {n}" for n in (2, 3, 5, 6)]


def test_an_error_of_the_callback_ends_the_reading(tmp_path: Path) -> None:
    def stop(error: CorpusError) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(read_documents(write(tmp_path, "d.jsonl", "oops\n"), on_bad=stop))


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stdin_of(monkeypatch, GOOD + '{"id": "é", "text": "ü"}\n{"id": 3}\n'.encode())
    documents = read_documents("-")
    assert next(documents).origin == "standard input line 1"
    assert next(documents) == Document("é", "ü")
    with pytest.raises(CorpusError, match=r'^standard input line 3: "text" is missing'):
        next(documents)
    assert not stream.closed


def test_closed_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CorpusError, match=r"^standard input: can't be read"):
        next(read_documents("-"))


def test_folder_of_text_files(tmp_path: Path) -> None:
    write(tmp_path, "b/x.md", "# é\r\nend")
    write(tmp_path, "b.txt", b"\xef\xbb\xbfplain\n\xef\xbb\xbfsecond\n")
    write(tmp_path, "b-c/DEEP/y.TXT", "")
    for skipped in (".hidden.txt", ".git/z.txt", "b/.h/z.txt", "b/image.png", "b/noext"):
        write(tmp_path, skipped, b"\xff")
    documents = read(tmp_path)
    assert documents == [
        Document("b-c/DEEP/y.TXT", "", "", {"path": "b-c/DEEP/y.TXT"}),
        Document("b.txt", "plain\n\ufeffsecond\n", "", {"path": "b.txt"}),
        Document("b/x.md", "# é\r\nend", "", {"path": "b/x.md"}),
    ]
    assert [document.origin for document in documents] == [document.id for document in documents]


@pytest.mark.parametrize("name", ["n.txt", "n.md", "n.txt.gz"])
def test_single_text_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "one\ntwo")
    assert read(path) == [Document(name, "one\ntwo", "", {"path": name})]
    assert read(path)[0].origin == str(path)


def test_bad_text_file_is_named_and_the_others_survive(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "x")
    write(tmp_path, "b.txt", b"one\ntwo \xff")
    (tmp_path / "c.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match=r"^b\.txt line 2: not valid UTF-8 \(byte 0xff\)"):
        read(tmp_path)
    documents, errors = read_leniently(tmp_path)
    assert [document.id for document in documents] == ["a.txt"]
    assert errors[1].startswith("c.txt: can't be read (No such file")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_name_that_is_not_unicode(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"n\xff.txt")).write_text("x")
    _, errors = read_leniently(tmp_path)
    assert errors[0].startswith(
        "n\\udcff.txt: the id has the lone surrogate \\udcff at character 2"
    )
    errors[0].encode()


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_beir_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, GOOD)
    write(tmp_path, "README.md", "not a document")
    assert read(tmp_path) == [Document("good", "kept")]
    assert read(tmp_path)[0].origin == f"{tmp_path / name} line 1"


BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "suffix": (
        "d.pdf",
        b"",
        r"d\.pdf: files of this kind can't be read; give a \.jsonl, .*BEIR folder",
    ),
    "suffix of gz": ("d.tar.gz", b"", r"d\.tar\.gz: files of this kind can't be read"),
    "no suffix": ("docs", b"", "docs: files of this kind can't be read"),
    "csv empty": ("d.csv", b"", r"d\.csv: the file is empty; it must have a header"),
    "csv header": ("d.csv", b"id,body\n", r"d\.csv line 1: the header names 'id', 'body'; it must"),
    "csv twice": ("d.csv", b"id,text,text\n", r"d\.csv line 1: .* each name must occur once"),
    "csv quote": ("d.csv", b'id,"text\n', r"d\.csv line 1: not valid CSV"),
    "csv utf-8": ("d.csv", b"id,text,\xff\n", r"d\.csv line 1: not valid UTF-8"),
    "tsv twice": ("d.tsv", b"id\ttext\tk\tk\n", r"d\.tsv line 1: .* each name must occur once"),
    "empty folder": ("sub/image.png", b"", r"the folder has no \.jsonl, \.txt or \.md files"),
}


@pytest.mark.parametrize(("name", "raw", "pattern"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file(tmp_path: Path, name: str, raw: bytes, pattern: str) -> None:
    write(tmp_path, name, raw)
    with pytest.raises(CorpusError, match=pattern):
        read_leniently(tmp_path / Path(name).parts[0])


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.pdf", "gone", "gone/d.csv", "nul\0.jsonl"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError) as raised:
        read_leniently(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name}: can't be read (")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "d.jsonl", GOOD)

    def refuse(self: Path, mode: str) -> None:  # chmod does not stop the superuser
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match=r"d\.jsonl: can't be read \(Permission denied\)\.$"):
        read_leniently(path)


def test_folder_that_can_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.txt", "x")
    write(tmp_path, "sub/b.txt", "x")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CorpusError, match=r"sub: can't be read \(Permission denied\)"):
        read_leniently(tmp_path)


def test_truncated_gzip_gives_its_whole_lines_and_then_an_error(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "text": os.urandom(500).hex()}) + "\n" for n in range(500)]
    packed = gzip.compress("".join(lines).encode())
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    documents: list[Document] = []
    with pytest.raises(CorpusError, match="the gzip file is damaged or cut short") as raised:
        deque(map(documents.append, read_documents(path, on_bad=lambda error: None)))
    assert 100 < len(documents) < 400
    assert [document.id for document in documents] == [str(n) for n in range(len(documents))]
    assert str(raised.value).startswith(f"{path} line {len(documents) + 1}: ")


@pytest.mark.parametrize("raw", [GOOD, b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 100])
def test_file_that_is_not_gzip(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(raw)
    with pytest.raises(CorpusError, match=r"d\.jsonl\.gz: the gzip file is damaged"):
        read_leniently(path)


def test_a_document_arrives_before_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    arrived = threading.Event()
    in_time: list[bool] = []

    def produce() -> None:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(GOOD)
            in_time.append(arrived.wait(timeout=10))

    producer = threading.Thread(target=produce)
    producer.start()
    documents = read_documents(path)
    assert next(documents).id == "good"
    arrived.set()
    producer.join()
    assert in_time == [True]
    assert list(documents) == []


@pytest.mark.parametrize("name", ["big.jsonl", "big.tsv", "big.csv"])
def test_a_file_of_fifty_megabytes_needs_little_memory(tmp_path: Path, name: str) -> None:
    text = "many words " * 1000
    row = {
        "big.jsonl": json.dumps({"id": "a", "text": text}),
        "big.tsv": f"a\t{text}",
        "big.csv": f'a,"{text}"',
    }[name]
    path = tmp_path / name
    with path.open("w") as stream:
        stream.write("id,text\n" if name == "big.csv" else "")
        stream.writelines(f"{row}\n" for _ in range(4600))
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_documents(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 4600
    assert peak < 2_000_000


def test_a_line_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 1 << 20)
    path = tmp_path / "bomb.jsonl.gz"
    whole = b'{"id": "a", "text": "b"}\n'
    path.write_bytes(gzip.compress(whole + b'{"id": "' + b"x" * (5 << 20) + b'"}\n' + whole))
    read = read_documents(path)
    assert next(read).id == "a"
    with pytest.raises(CorpusError, match=r"bomb\.jsonl\.gz line 2: .* longer than 1 MiB; divide"):
        next(read)
