"""The addresses of documents: one by one, and many in a request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from tests.support.collection import DOCUMENTS
from tests.support.serving import LINES, Reply, Running, chunks, lines, running

# --- single documents


IDS = [
    "a",
    "a/b/c",
    "/",
    "//",
    "a/",
    ".",
    "..",
    "../x",
    "a?b#c",
    "%2F",
    "ü ☃",
    "\0",
    "\n",
    "a\n",
    "\na\r\nb\n",
    "\x85\u2028\u2029",
    " ",
    "\u200b",
    "documents/a",
    "+ &;",
    "x" * 5000,
]


@pytest.mark.parametrize("id_", IDS, ids=ascii)
def test_put_get_delete(service: Running, id_: str) -> None:
    path = f"/documents/{quote(id_, safe='')}"
    first = {"title": "t", "text": "moon <script>alert(1)</script>", "metadata": {"n": [1, None]}}
    assert service.ask("GET", path).status == 404
    assert service.ask("DELETE", path).code == "not_found"
    counted = service.ask("PUT", path, first)
    assert (counted.status, counted.json) == (200, outcome(added=1))
    stored = {"id": id_, **first}
    assert service.ask("GET", path).json == stored
    assert service.ask("PUT", path, stored).json == outcome(unchanged=1)
    assert service.ask("PUT", path, {"text": "sun"}).json == outcome(updated=1)
    bare = {"id": id_, "title": "", "text": "sun", "metadata": {}}
    assert service.ask("GET", path).json == bare
    if "\0" not in id_:  # a filter can't compare with that
        assert service.search("sun", where={"id": id_})[0]["hits"][0]["id"] == id_
    assert service.ask("DELETE", path).json == {"deleted": id_}
    assert service.ask("GET", path).status == 404
    assert service.search("sun", mode="bm25", top=1)[0]["hits"][0]["id"] != id_


def outcome(**counts: int) -> dict[str, int]:
    return {"added": 0, "updated": 0, "unchanged": 0, "cut": 0, **counts}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/documents/a", {}, "text: "),
        ("/documents/a", {"text": 1}, "text: "),
        ("/documents/a", {"text": "x", "title": None}, "title: "),
        ("/documents/a", {"text": "x", "metadata": []}, "metadata: "),
        ("/documents/a", {"text": "x", "metadata": {"n": 2**70}}, "64 bits"),
        ("/documents/a", {"text": "x", "topic": "law"}, "topic: "),
        ("/documents/a", {"text": "x", "id": "b"}, "not the one in the address"),
        ("/documents/", {"text": "x"}, "the id is empty"),
        ("/documents/%ff", {"text": "x"}, "not valid UTF-8"),
        ("/documents/%ed%a0%80", {"text": "x"}, "not valid UTF-8"),
        ("/documents/a", b'{"text": "\\ud800"}', "lone surrogate"),
        ("/documents/a", b'{"text": "x", "metadata": {"n": NaN}}', "finite"),
        ("/documents/a", b'{"text": "x", "metadata": {"\\ud800": 1}}', "Unicode"),
    ],
)
def test_documents_that_are_refused(shared: Running, path: str, body: Any, said: str) -> None:
    reply = shared.ask("PUT", path, body)
    assert (reply.status, reply.code) == (422, "invalid")
    assert said in reply.message


def test_ids_that_are_no_text_are_not_another_id(shared: Running) -> None:
    for method in ("GET", "DELETE"):
        assert shared.ask(method, "/documents/%ff").status == 422
        assert shared.ask(method, "/documents/").status == 404


def test_a_cut_document_is_told(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    index = Index.create(tmp_path / "cut", model=tiny_model, long="truncate")
    with running(index) as service:
        long = {"text": "river " * 500}
        assert service.ask("PUT", "/documents/a", long).json == outcome(added=1, cut=1)
        assert service.ask("PUT", "/documents/b", {"text": "x"}).json == outcome(added=1)
        body = lines({"id": "c", **long}, {"id": "d", "text": "x"})
        reply = service.ask("POST", "/documents", body, kind=LINES)
        assert reply.json == outcome(added=2, cut=1)


# --- many documents


def test_bulk(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = [
        {"id": "a", "text": "moon", "topic": "sky", "metadata": {"n": 1}},
        b"",
        {"_id": 7, "text": "sun\u2028star", "title": "T"},
        b"\r",
        {"id": "id 1", "text": "changed"},
        {"id": "a", "text": "moon", "topic": "sky", "metadata": {"n": 1}},
    ]
    assert service.upload(b"\xef\xbb\xbf" + lines(*records)).json == outcome(
        added=2, updated=1, unchanged=1
    )
    assert service.ask("GET", "/documents/a").json["metadata"] == {"topic": "sky", "n": 1}
    assert service.ask("GET", "/documents/7").json["text"] == "sun\u2028star"
    assert service.upload(b"").json == outcome()
    assert service.upload(b'{"id": "z", "text": "no line end"}').json == outcome(added=1)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_bulk_in_chunks(service: Running, size: int) -> None:
    records = [{"id": f"ü{number}", "text": "river ☃ " * 3} for number in range(20)]
    assert service.upload(chunks(lines(*records), size)).json == outcome(added=20)
    assert service.ask("GET", "/documents/%C3%BC19").json["text"] == "river ☃ " * 3


def test_an_error_in_bulk_names_the_line_and_keeps_what_was_stored(service: Running) -> None:
    records: list[Any] = [{"id": f"n{number}", "text": "moon"} for number in range(150)]
    records[140] = {"id": "no text"}
    reply = service.upload(lines(*records))
    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.message.startswith('line 141: "text" is missing; ')
    assert reply.message.endswith("; documents up to line 128 have been stored.")
    index: Index = service.parts.index.index
    assert len(index) == len(DOCUMENTS) + 128
    assert index.get("n127")
    assert index.get("n128") is None
    first = service.upload(lines(b"[]"))
    assert first.message == (
        'line 1: the JSON is an array, not an object; each line must be one JSON object with "id" '
        'and "text"; nothing was stored.'
    )


def test_a_part_of_a_file_says_where_it_begins(service: Running) -> None:
    def part(first: int, *records: Any) -> Reply:
        body = lines(*records)
        return service.ask("POST", f"/documents?first_line={first}", body, kind=LINES)

    assert part(1, {"id": "a", "text": "moon"}).json == outcome(added=1)
    wrong = part(2, b"", {"id": "b"})
    assert wrong.message.startswith('line 3: "text" is missing; ')
    assert wrong.message.endswith("; documents up to line 1 have been stored.")
    for first in ("0", "x", "-1", str(1 << 60)):
        reply = service.ask("POST", f"/documents?first_line={first}", b"", kind=LINES)
        assert reply.status == 422
        assert "first_line: " in reply.message


def test_bulk_takes_no_more_memory_than_a_batch(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been stored is let go: at no time do many documents wait."""
    waiting: list[int] = []
    add = Index.add

    def watched(self: Index, documents: Any) -> Any:
        waiting.append(len(documents))
        return add(self, documents)

    monkeypatch.setattr(Index, "add", watched)
    sent = 0

    def stream() -> Iterator[bytes]:
        nonlocal sent
        for number in range(300):
            sent += 1
            yield lines({"id": f"n{number}", "text": "moon"})

    assert service.upload(stream()).json == outcome(added=300)
    assert sent == 300
    assert waiting == [64, 64, 64, 64, 44]


def test_batches_are_cut_by_length_too(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pseudoquery.service.uploads.BATCH_CHARACTERS", 10)
    records = [{"id": f"n{number}", "text": "moon sun"} for number in range(5)]
    reply = service.upload(lines(*records, b"broken"))
    assert reply.message.endswith("documents up to line 4 have been stored.")
