"""JSON lines, TSV, CSV and text files: what each record becomes, and each way to break one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pseudoquery.corpus.documents import read_documents
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document
from tests.support.sources import GOOD, read, read_leniently, write


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
