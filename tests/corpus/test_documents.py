from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import threading
import tracemalloc
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pseudoquery.corpus.documents import read_documents, read_qrels, read_queries
from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query

GOOD = b'{"id": "good", "text": "kept"}\n'


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def read(path: Path) -> list[Document]:
    return list(read_documents(path))


def read_leniently(path: Path) -> tuple[list[Document], list[str]]:
    errors: list[CorpusError] = []
    documents = list(read_documents(path, on_bad=errors.append))
    return documents, [str(error) for error in errors]


def stdin_of(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BytesIO(raw), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", stream)
    return stream


# JSON lines


@pytest.mark.parametrize("name", ["d.jsonl", "d.ndjson", "d.JSONL", "d.jsonl.gz", "d.ndjson.gz"])
def test_jsonl_fields(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"_id": "a", "title": "T", "text": "x", "metadata": {"year": 1999, "id": 5}, "lang": "en"},
        {"id": 7, "text": "y", "title": None, "metadata": None},
        {"_id": "first", "id": "second", "text": "z", "tags": ["p", {"q": [None, True, 1.5]}]},
    ]
    path = write(tmp_path, name, "".join(json.dumps(row) + "\n" for row in rows))
    documents = read(path)
    assert documents == [
        Document("a", "x", "T", {"year": 1999, "id": 5, "lang": "en"}),
        Document("7", "y"),
        Document("first", "z", "", {"tags": ["p", {"q": [None, True, 1.5]}]}),
    ]
    assert [document.origin for document in documents] == [f"{path} line {n}" for n in (1, 2, 3)]


def test_nested_metadata_wins_over_a_key_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl", '{"id": "a", "text": "", "k": 1, "metadata": {"k": 2}}')
    assert read(path)[0].metadata == {"k": 2}


def test_origin_names_the_file_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sub/d.jsonl", b"\n" + GOOD)
    monkeypatch.chdir(tmp_path)
    assert [document.origin for document in read_documents("sub/d.jsonl")] == ["sub/d.jsonl line 2"]


def test_line_ends_blank_lines_and_bom(tmp_path: Path) -> None:
    raw = b'\xef\xbb\xbf{"id": 1, "text": "a"}\r\n\r\n \t\n\n{"id": 2, "text": "b"}'
    documents = read(write(tmp_path, "d.jsonl", raw))
    assert [(d.id, d.text) for d in documents] == [("1", "a"), ("2", "b")]
    assert documents[1].origin.endswith("d.jsonl line 5")


@pytest.mark.parametrize(
    "text", ["", " \t\n", "a\0b", "👩‍👩‍👧 😀", "שלום عالم", "a\u2028b\x85c\x0cd"]
)
def test_odd_but_valid_text_is_kept(tmp_path: Path, text: str) -> None:
    escaped = json.dumps({"id": "1", "text": text})
    plain = json.dumps({"id": "2", "text": text}, ensure_ascii=False)
    documents = read(write(tmp_path, "d.jsonl", f"{escaped}\n{plain}\n"))
    assert [document.text for document in documents] == [text, text]


def test_raw_nul_in_a_table_is_kept(tmp_path: Path) -> None:
    assert read(write(tmp_path, "d.tsv", b"1\ta\0b\n"))[0].text == "a\0b"
    assert read(write(tmp_path, "d.csv", b"id,text\n1,a\0b\n"))[0].text == "a\0b"


BAD_LINES = {
    "cut": (b'{"id": "a" "text": 1}', ["not valid JSON (Expecting ',' delimiter at column 12)"]),
    "word": (b"hello", ["not valid JSON", "at column 1", 'one JSON object with "id" and "text"']),
    "two objects": (b"{} {}", ["not valid JSON (Extra data at column 4)"]),
    "array": (b"[1]", ["the JSON is an array, not an object"]),
    "null": (b"null", ["the JSON is null, not an object"]),
    "no id": (b'{"text": "x"}', ['"id" (or "_id") is missing']),
    "no text": (b'{"id": "a"}', ['"text" is missing']),
    "empty id": (b'{"id": "", "text": "x"}', ["the id is empty"]),
    "float id": (b'{"id": 1.5, "text": "x"}', ["the id is a number; it must be a string"]),
    "true id": (b'{"id": true, "text": "x"}', ["the id is true or false"]),
    "null id": (b'{"_id": null, "id": "a", "text": "x"}', ["the id is null"]),
    "list id": (b'{"id": ["a"], "text": "x"}', ["the id is an array"]),
    "text number": (b'{"id": "a", "text": 3}', ["the text is a number; it must be a string"]),
    "text null": (b'{"id": "a", "text": null}', ["the text is null"]),
    "title number": (b'{"id": "a", "text": "", "title": 0}', ["the title is a number"]),
    "metadata": (b'{"id": "a", "text": "", "metadata": "m"}', ['"metadata" is a string']),
    "utf-8": (b'{"id": "a", "text": "\xff"}', ["not valid UTF-8 (byte 0xff)"]),
    "utf-16 half as utf-8": (
        b'{"id": "a", "text": "\xed\xa0\x80"}',
        ["not valid UTF-8 (byte 0xed)"],
    ),
    "id half": (rb'{"id": "\ud83d", "text": ""}', ["the id has the lone surrogate \\ud83d"]),
    "text half": (
        rb'{"id": "a", "text": "ab\ud83d"}',
        ["the text has the lone surrogate \\ud83d at character 3"],
    ),
    "escape byte": (rb'{"id": "a", "text": "\udcff"}', ["the text has the lone surrogate \\udcff"]),
    "title half": (rb'{"id": "a", "text": "", "title": "\ude00"}', ["the title has", "\\ude00"]),
    "key half": (rb'{"id": "a", "text": "", "\ud83d": 1}', ["a key of the metadata has the lone"]),
    "value half": (
        rb'{"id": "a", "text": "", "k": [{"x": "\ud83d"}]}',
        ["the metadata under 'k' has the lone surrogate \\ud83d"],
    ),
    "inner key half": (
        rb'{"id": "a", "text": "", "k": {"\ud83d": 1}}',
        ["the metadata under 'k' has a key that has the lone surrogate"],
    ),
    "nan": (b'{"id": "a", "text": "", "k": NaN}', ["NaN is not a JSON value"]),
    "infinity": (b'{"id": "a", "text": "", "k": -Infinity}', ["-Infinity is not a JSON value"]),
    "overflow": (b'{"id": "a", "text": "", "k": 1e999}', ["under 'k' has inf; a number must be"]),
    "65 bits": (b'{"id": "a", "text": "", "k": 9223372036854775808}', ["does not fit in 64 bits"]),
    "digits": (b'{"id": "a", "text": "", "k": ' + b"9" * 5000 + b"}", ["not valid JSON (Exceeds"]),
    "deep": (b'{"id": "a", "text": "", "k": ' + b"[" * 100_000, ["the JSON is nested too deeply"]),
    "rather deep": (
        b'{"id": "a", "text": "", "k": ' + b"[" * 100 + b"]" * 100 + b"}",
        ["under 'k' is nested more than 100 levels deep"],
    ),
}


@pytest.mark.parametrize(("line", "fragments"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_line_is_named_and_the_others_survive(
    tmp_path: Path, line: bytes, fragments: list[str]
) -> None:
    path = write(tmp_path, "docs.jsonl", GOOD + b"\n" + line + b"\n" + GOOD)
    with pytest.raises(CorpusError) as raised:
        read(path)
    documents, errors = read_leniently(path)
    assert [document.origin for document in documents] == [f"{path} line 1", f"{path} line 4"]
    assert errors == [str(raised.value)]
    for fragment in [f"{path} line 3: ", *fragments]:
        assert fragment in errors[0]
    assert errors[0].endswith(".")
    assert "\n" not in errors[0]
    errors[0].encode()  # can be printed


def test_the_example_of_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "docs.jsonl", GOOD * 11 + b'{"id": "0123456" "text": "x"}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError) as raised:
        list(read_documents("docs.jsonl"))
    assert str(raised.value) == (
        "docs.jsonl line 12: not valid JSON (Expecting ',' delimiter at column 18); "
        'each line must be one JSON object with "id" and "text".'
    )


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


# Standard input


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


# Tables


@pytest.mark.parametrize("name", ["d.tsv", "d.tsv.gz"])
def test_tsv_with_header(tmp_path: Path, name: str) -> None:
    content = 'lang\ttext\t_id\ttitle\r\nen\tsay "hi", you\t1\tT\r\n\r\nde\t\t2\t'
    documents = read(write(tmp_path, name, content))
    assert documents == [
        Document("1", 'say "hi", you', "T", {"lang": "en"}),
        Document("2", "", "", {"lang": "de"}),
    ]
    assert documents[1].origin.endswith(f"{name} line 4")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('1\t"quoted', Document("1", '"quoted')),
        ("1\tT\tx", Document("1", "x", "T")),
        ("1\thttp://u\tT\tx", Document("1", "x", "T", {"url": "http://u"})),
    ],
)
def test_tsv_of_ms_marco(tmp_path: Path, row: str, expected: Document) -> None:
    assert read(write(tmp_path, "d.tsv", f"\ufeff{row}\n{row}\r\n")) == [expected, expected]


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz"])
def test_csv(tmp_path: Path, name: str) -> None:
    content = (
        '\ufeffid,text,metadata,title\r\n1,"two\r\nlines, ""quoted""",m,T\r\n\r\n2,plain "q",,\r\n'
    )
    documents = read(write(tmp_path, name, content))
    assert documents == [
        Document("1", 'two\r\nlines, "quoted"', "T", {"metadata": "m"}),
        Document("2", 'plain "q"', "", {"metadata": ""}),
    ]
    assert [document.origin[-6:] for document in documents] == ["line 2", "line 5"]


def test_csv_with_ten_megabytes_in_a_cell(tmp_path: Path) -> None:
    text = "line of text\n" * 800_000
    csv.field_size_limit(131_072)
    path = write(tmp_path, "d.csv", f'id,text\n1,"{text}"\n2,x\n')
    documents = read_documents(path)
    assert next(documents).text == text
    assert csv.field_size_limit() == 131_072
    assert next(documents).origin.endswith("line 800003")


BAD_ROWS: dict[str, tuple[str, bytes, int, str]] = {
    "tsv few": ("d.tsv", b"a\tx\nb\nc\ty\n", 2, "number of columns is 1; it must be 2"),
    "tsv stray tab": ("d.tsv", b"a\tx\nb\ty\tz\nc\ty\n", 2, "number of columns is 3; it must be 2"),
    "tsv first row": ("d.tsv", b"oops\na\tx\nc\ty\n", 1, "is 1; it must be 2, 3 or 4"),
    "tsv header": ("d.tsv", b"id\ttext\tk\nb\ty\na\tx\t1\nc\ty\t1\n", 2, "is 2; it must be 3"),
    "tsv empty id": ("d.tsv", b"a\tx\n\ty\nc\ty\n", 2, "the id is empty"),
    "tsv utf-8": ("d.tsv", b"a\tx\nb\t\xe9\nc\ty\n", 2, "not valid UTF-8 (byte 0xe9)"),
    "csv few": ("d.csv", b"id,text\na,x\nb\nc,y\n", 3, "number of columns is 1; it must be 2"),
    "csv many": ("d.csv", b"id,text\na,x\nb,y,z\nc,y\n", 3, "number of columns is 3; it must be 2"),
    "csv empty id": ("d.csv", b'id,text\na,"x\n"\n"",y\nc,y\n', 4, "the id is empty"),
    "csv utf-8": ("d.csv", b'id,text\na,x\nb,"\n\xff"\nc,y\n', 3, "not valid UTF-8 (byte 0xff)"),
    "csv quote": ("d.csv", b'id,text\na,x\nb,"y"z\nc,y\n', 3, "not valid CSV"),
    "csv open": ("d.csv", b'id,text\na,x\nc,y\nb,"y\nz\n', 4, "not valid CSV (unexpected end"),
}


@pytest.mark.parametrize(
    ("name", "raw", "line", "fragment"), BAD_ROWS.values(), ids=BAD_ROWS.keys()
)
def test_bad_row_is_named_and_the_others_survive(
    tmp_path: Path, name: str, raw: bytes, line: int, fragment: str
) -> None:
    path = write(tmp_path, name, raw)
    with pytest.raises(CorpusError) as raised:
        read(path)
    documents, errors = read_leniently(path)
    assert [document.id for document in documents] == ["a", "c"]
    assert errors == [str(raised.value)]
    assert errors[0].startswith(f"{path} line {line}: ")
    assert fragment in errors[0]


# Folders and text files


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


# Sources that can't be read at all: raised even where bad records are skipped

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


# Memory and laziness


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


# Round trip

unicode = st.text(st.characters(exclude_categories=["Cs"]))
integers = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | unicode, lambda inner: st.lists(inner) | st.dictionaries(unicode, inner), max_leaves=8
)
metadata = st.dictionaries(unicode, values, max_size=4)
documents_made = st.builds(Document, unicode.filter(bool), unicode, unicode, metadata)


@settings(deadline=None)
@given(st.lists(documents_made, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Document], ascii_: bool, end: str
) -> None:
    lines = (
        json.dumps(
            {"id": d.id, "text": d.text, "title": d.title, "metadata": d.metadata},
            ensure_ascii=ascii_,
        )
        for d in documents
    )
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    path.write_bytes("".join(line + end for line in lines).encode())
    assert read(path) == documents


@settings(deadline=None)
@given(st.lists(st.tuples(unicode.filter(bool), unicode), max_size=6))
def test_csv_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    assert read(path) == [Document(identifier, text) for identifier, text in rows]


# check_document


def holds_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "document '': the id is empty"),
        ({"id": 3}, "document: the id is a number; it must be a string"),
        ({"id": b"a"}, "document: the id is of type bytes"),
        ({"id": "\ud83d"}, "document '\\ud83d': the id has the lone surrogate \\ud83d"),
        ({"text": None}, "document 'a': the text is null"),
        ({"title": None}, "document 'a': the title is null"),
        ({"text": None, "origin": "d.jsonl line 2"}, "d.jsonl line 2: the text is null"),
        ({"metadata": []}, "document 'a': the metadata is an array; it must be an object"),
        ({"metadata": {1: "x"}}, "document 'a': a key of the metadata is a number"),
        ({"metadata": {"k": {1: "x"}}}, "the metadata under 'k' has a key that is a number"),
        ({"metadata": {"k": float("nan")}}, "under 'k' has nan; a number must be finite"),
        ({"metadata": {"k": [2**63]}}, "under 'k' has an integer that does not fit in 64 bits"),
        ({"metadata": {"k": -(2**63) - 1}}, "does not fit in 64 bits"),
        ({"metadata": {"k": (1, 2)}}, "under 'k' is or has a value of type tuple"),
        ({"metadata": {"k": {"x": {3}}}}, "under 'k' is or has a value of type set"),
        ({"metadata": {"k": holds_itself()}}, "under 'k' is nested more than 100 levels deep"),
        ({"id": "x" * 1000, "text": 1}, f"document '{'x' * 77}'...: the text is a number"),
    ],
)
def test_check_document_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError) as raised:
        check_document(Document(**{"id": "a", "text": "x", **fields}))
    assert message in str(raised.value)
    assert str(raised.value).startswith(("document", "d.jsonl line 2: "))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"": ""},
        {"k": [None, True, -(2**63), 2**63 - 1, 0.5, "é", [], {}, {"x": [{"y": 1}]}]},
        {"deep": json.loads("[" * 99 + "]" * 99)},
    ],
)
def test_check_document_accepts(metadata: Mapping[str, Any]) -> None:
    check_document(Document("a", "", "", metadata))


# Queries


@pytest.mark.parametrize("name", ["queries.jsonl", "queries.jsonl.gz"])
def test_queries_of_a_folder_and_of_a_file(tmp_path: Path, name: str) -> None:
    content = (
        '{"_id": "q1", "text": "who?", "metadata": {"answers": ["me", "you"]}}\n'
        '{"_id": 2, "text": "why?", "metadata": {}}\n\n'
        '{"_id": "q3", "text": "", "metadata": {"answers": null}}\n'
    )
    path = write(tmp_path, name, content)
    expected = [Query("q1", "who?", ("me", "you")), Query("2", "why?"), Query("q3", "")]
    assert list(read_queries(tmp_path)) == list(read_queries(str(path))) == expected


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        (b"{", "not valid JSON"),
        (b'{"_id": "q"}', '"text" is missing'),
        (b'{"_id": "", "text": "x"}', "the id is empty"),
        (b'{"_id": "q", "text": "\xff"}', "not valid UTF-8"),
        (rb'{"_id": "q", "text": "\ud83d"}', "lone surrogate"),
        (b'{"_id": "q", "text": "x", "metadata": {"answers": "me"}}', "array of strings"),
        (b'{"_id": "q", "text": "x", "metadata": {"answers": [1]}}', "array of strings"),
    ],
)
def test_bad_query(tmp_path: Path, line: bytes, fragment: str) -> None:
    path = write(tmp_path, "queries.jsonl", GOOD + line)
    with pytest.raises(CorpusError) as raised:
        list(read_queries(path))
    assert str(raised.value).startswith(f"{path} line 2: ")
    assert fragment in str(raised.value)


def test_missing_queries(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"queries\.jsonl: can't be read \(No such file"):
        list(read_queries(tmp_path))
    with pytest.raises(CorpusError, match=r"gone: can't be read \(No such file"):
        list(read_queries(tmp_path / "gone"))


# Judgements


@pytest.mark.parametrize("name", ["test.tsv", "test.tsv.gz"])
def test_beir_qrels(tmp_path: Path, name: str) -> None:
    content = "\ufeffquery-id\tcorpus-id\tscore\r\nq 1\tmy notes.txt\t1\r\n\r\n2\té\t0"
    expected = [Qrel("q 1", "my notes.txt", 1), Qrel("2", "é", 0)]
    assert list(read_qrels(write(tmp_path, name, content))) == expected


def test_trec_qrels(tmp_path: Path) -> None:
    path = write(tmp_path, "qrels.txt", "q1 0 d1 2\nq1\t0  d2\t-1\n")
    assert list(read_qrels(str(path))) == [Qrel("q1", "d1", 2), Qrel("q1", "d2", -1)]


BEIR = b"query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("raw", "fragment"),
    [
        (BEIR + b"q\td\n", "query-id, corpus-id, score, none of them empty, between tabs"),
        (BEIR + b"q d 1\n", "there are 1."),
        (BEIR + b"\td\t1\n", "none of them empty"),
        (BEIR + b"q\td\tyes\n", "the relevance is 'yes'; it must be an integer"),
        (BEIR + b"q\t\xff\t1\n", "not valid UTF-8 (byte 0xff)"),
        (b"q 0 d 1\nq\td\t1\n", "query, 0, document, relevance, none of them empty; there are 3."),
        (b"q 0 d 1\nq 0 d 0.5\n", "the relevance is '0.5'"),
    ],
)
def test_bad_qrels(tmp_path: Path, raw: bytes, fragment: str) -> None:
    path = write(tmp_path, "q.tsv", raw)
    with pytest.raises(CorpusError) as raised:
        list(read_qrels(path))
    assert str(raised.value).startswith(f"{path} line 2: ")
    assert fragment in str(raised.value)


def test_missing_qrels(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone\.tsv: can't be read \(No such file"):
        list(read_qrels(tmp_path / "gone.tsv"))
    with pytest.raises(CorpusError, match=r"can't be read \(Is a directory"):
        list(read_qrels(tmp_path))
