"""`pseudoquery add` and `delete`: what goes in comes out, and bad records are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pseudoquery.index import Index
from tests.support.command import Run, check_refused, write
from tests.support.indexes import RECORDS, content


def test_add(run: Run, index: Path, tmp_path: Path) -> None:
    changed = {**RECORDS[1], "text": "changed"}
    more = write(tmp_path / "more.jsonl", RECORDS[0], changed, {"id": "new", "text": "new"})
    ran = run("add", index, more)
    assert ran.out == "Added 1 document, updated 1, left 1 unchanged.\n"
    assert run("add", index, more, "--json").json == (
        {"added": 0, "updated": 0, "unchanged": 3, "cut": 0, "skipped": 0}
    )
    documents, _ = content(index)
    assert len(documents) == 41
    assert {document.text for document in documents} >= {"changed", "new"}


def test_delete(run: Run, index: Path) -> None:
    assert run("delete", index, "id 1", "id 2").out == "Deleted 2 documents.\n"
    assert run("delete", index, "id 3", "--json").json == {"deleted": ["id 3"], "missing": []}
    documents, results = content(index)
    assert len(documents) == len(results) == 37


BAD_LINES = {
    "not JSON": "{not JSON",
    "an array": "[1, 2]",
    "no id": {"text": "moon"},
    "an empty id": {"id": "", "text": "moon"},
    "no text": {"id": "x"},
    "text that is a number": {"id": "x", "text": 7},
    "metadata that is a list": {"id": "x", "text": "moon", "metadata": [1]},
    "a lone surrogate": '{"id": "x", "text": "a \\ud800 b"}',
    "a number too large": {"id": "x", "text": "moon", "n": 2**70},
    "NaN": '{"id": "x", "text": "moon", "n": NaN}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_malformed_records_stop_or_are_skipped(
    run: Run, index: Path, tmp_path: Path, line: Any
) -> None:
    source = write(tmp_path / "new.jsonl", {"id": "a", "text": "moon"}, line, RECORDS[0])
    before = content(index)
    check_refused(run("add", index, source), f"{source} line 2", "--on-error skip")
    assert content(index) == before
    skipped = run("add", index, source, "--on-error", "skip", "--json")
    assert skipped.code == 0
    assert skipped.json == {"added": 1, "updated": 0, "unchanged": 1, "cut": 0, "skipped": 1}
    assert f"Skipped: {source} line 2" in skipped.err
    assert len(content(index)[0]) == 41
    assert run("add", index, source, "--on-error", "skip").out == (
        "Added 0 documents, left 2 unchanged, skipped 1.\n"
    )


def test_only_the_first_skipped_records_are_named(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "new.jsonl", *["broken"] * 20)
    ran = run("add", index, source, "--on-error", "skip", "--json")
    assert ran.json["skipped"] == 20
    assert ran.err.count("Skipped: ") == 5
    assert ran.err.endswith("Skipped more records, which are only counted.\n")


def test_blank_documents_are_kept_and_found(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(
        tmp_path / "blank.jsonl",
        {"id": "empty", "text": "", "kind": "blank"},
        {"id": "space", "text": " \n\t\u00a0", "kind": "blank"},
        {"id": "titled", "text": "", "title": "xylophone", "kind": "blank"},
    )
    assert run("add", index, source, "--json").json["added"] == 3
    listed = run("list", index, "--where", "kind=blank", "--json").lines
    assert [record["id"] for record in listed] == ["empty", "space", "titled"]
    assert listed[1]["text"] == " \n\t\u00a0"
    hits = run("search", index, "xylophone", "--mode", "bm25", "--json").json["hits"]
    assert [hit["id"] for hit in hits] == ["titled"]
    for mode in ("dense", "bm25", "hybrid"):
        assert run("search", index, "xylophone", "--mode", mode, "--top", 100).code == 0
    assert run("info", index, "--json").json["without_vectors"] == 2
    explained = run("explain", index, "king", "empty", "--json").json
    assert (explained["score"], explained["pseudo_queries"]) == (None, [])
    assert run("explain", index, "king", "empty").code == 0
    assert run("verify", index).code == 0


STRANGE = {
    "emoji": "😀 family 👨‍👩‍👧 zebra",
    "NUL": "a\0b zebra \0",
    "right to left": "שלום عالم zebra \u202e",
    "controls": "zebra \x1b[2J \x07 \r\n \x9b",
    "separators": "zebra \u2028 \u2029 \x85 \x0b \x1c",
    "quotes": "zebra '; DROP TABLE documents; --\" [bold] {}",
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE.keys())
def test_strange_texts_go_in_and_come_out(run: Run, index: Path, tmp_path: Path, text: str) -> None:
    record = {"id": f"id {text}", "title": text, "text": text, "strange": text}
    source = write(tmp_path / "strange.jsonl", record)
    assert run("add", index, source, "--json").json["added"] == 1
    hits = run("search", index, "zebra", "--mode", "bm25", "--json").json["hits"]
    assert [(hit["id"], hit["text"], hit["title"]) for hit in hits] == [(record["id"], text, text)]
    assert hits[0]["metadata"] == {"strange": text}
    for command in (["list", index], ["search", index, text], ["search", index, text, "--mode",
                    "hybrid"], ["explain", index, "king", record["id"]]):  # fmt: skip
        assert run(*command).code == 0
    assert run("verify", index).code == 0
    assert run("delete", index, record["id"], "--json").json["deleted"] == [record["id"]]


@pytest.mark.slow
def test_a_document_of_ten_megabytes(run: Run, index: Path, tmp_path: Path) -> None:
    text = ("q" * 120 + " the king ") * (10**7 // 130)
    source = write(tmp_path / "large.jsonl", {"id": "large", "text": text})
    assert run("add", index, source, "--json").json == (
        {"added": 1, "updated": 0, "unchanged": 0, "cut": 0, "skipped": 0}
    )
    hits = run("search", index, "the king", "--where", "id=large", "--json").json["hits"]
    assert hits[0]["text"] == text
    assert run("list", index, "--where", "id=large").out.startswith("large\tqqq")
    assert run("verify", index).code == 0


def test_unknown_ids_are_named_and_the_others_deleted(run: Run, index: Path) -> None:
    check_refused(
        run("delete", index, "nobody"),
        f"{index} has no document with the id 'nobody'; nothing was deleted.",
    )
    check_refused(
        run("delete", index, "id 2", "nobody"),
        f"{index} has no document with the id 'nobody'; the other document was deleted.",
    )
    ran = run("delete", index, "id 1", "nobody", "no one", "--json")
    assert ran.code == 2
    assert ran.json == {"deleted": ["id 1"], "missing": ["nobody", "no one"]}
    assert "has no documents with the ids 'nobody', 'no one'; the other document was" in ran.err
    several = run("delete", index, "id 3", "id 4", *map(str, range(7)))
    assert "'0', '1', '2', '3', '4' and 2 more; the other 2 documents were deleted." in several.err
    assert len(content(index)[0]) == 36


def test_a_second_writer_is_refused(run: Run, index: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "docs.jsonl", {"id": "new", "text": "new"})
    with Index.open(index).store.writer():
        for arguments in (["add", index, source], ["delete", index, "id 1"], ["compact", index]):
            check_refused(run(*arguments), "another process is writing to", "run this again")
        assert run("search", index, "king").code == 0, "readers go on"
    assert run("add", index, source).code == 0
