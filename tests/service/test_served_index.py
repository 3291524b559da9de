"""Many ask and change at once: questions go together, changes in order, and no one sees a half."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import encode as encoding
from pseudoquery.errors import IndexLockedError, QueryError
from pseudoquery.index import Index
from pseudoquery.records import Added, Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.served_index import SearchJob, ServedIndex, retry_while_locked, run_batch
from tests.support.collection import DOCUMENTS
from tests.support.serving import LINES, lines, running


@pytest.fixture
def many(served: Index) -> Iterator[ServedIndex]:
    started = ServedIndex(served, Metrics())
    started.warm_up()
    yield started
    started.close()


def asking(*queries: str, **how: Any) -> SearchJob:
    plain: dict[str, Any] = {
        "top": 10,
        "where": {},
        "exact": False,
        "mode": "dense",
        "settings": SearchSettings(),
    }
    return SearchJob(queries, **{**plain, **how})


class Held:
    """Holds a thread up in a function, and remembers what the function was given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.begun = threading.Event()
        self.free = threading.Event()
        self.given: list[Any] = []

    def __call__(self, model: Any, texts: Any, *others: Any) -> Any:
        self.given.append(list(texts))
        self.begun.set()
        assert self.free.wait(30)
        return self.function(model, texts, *others)


# --- searching


def test_what_waits_goes_through_the_encoder_together(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {query: many.index.search(query) for query in ("king", "queen", "river", "moon")}
    held = Held(encoding.encode_questions)
    monkeypatch.setattr(encoding, "encode_questions", held)
    first = many.search(asking("king"))
    assert held.begun.wait(10)
    waiting = [many.search(asking(query)) for query in ("queen", "river")]
    waiting.append(many.search(asking("moon", "king")))
    held.free.set()
    assert first.result(10) == [expected["king"]]
    found = [answer for future in waiting for answer in future.result(10)]
    assert [answer.query for answer in found] == ["queen", "river", "moon", "king"]
    assert [[hit.id for hit in one.hits] for one in found] == [
        [hit.id for hit in expected[one.query].hits] for one in found
    ]
    assert held.given == [["king"], ["queen", "river", "moon", "king"]]


def test_requests_over_http_are_batched(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(served) as service, ThreadPoolExecutor(41) as pool:
        held = Held(encoding.encode_questions)
        monkeypatch.setattr(encoding, "encode_questions", held)
        first = pool.submit(service.search, "king")
        assert held.begun.wait(10)
        waiting = [pool.submit(service.search, f"queen {number}") for number in range(40)]
        searches = service.parts.index._searches
        end = time.monotonic() + 20
        while searches.waiting < 40:
            assert time.monotonic() < end
            time.sleep(0.005)
        held.free.set()
        assert first.result(10)
        answered = [one.result(10)[0]["query"] for one in waiting]
        assert answered == [f"queen {number}" for number in range(40)]
        assert [len(given) for given in held.given] == [1, 40]


def test_a_batch_has_a_largest_size(many: ServedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(encoding.encode_questions)
    monkeypatch.setattr(encoding, "encode_questions", held)
    futures = [many.search(asking("king"))]
    assert held.begun.wait(10)
    futures += [many.search(asking(*["queen"] * 30)) for _ in range(5)]
    held.free.set()
    for future in futures:
        future.result(10)
    assert [len(given) for given in held.given] == [1, 60, 60, 30]


def test_searches_of_another_kind_are_not_mixed(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python holds True, 1 and 1.0 for equal; a filter tells them apart."""
    hows: list[dict[str, Any]] = [
        {"where": {"even": True}},
        {"where": {"even": 1}},
        {"where": {"n": 1}},
        {"where": {"n": {"<": 3}}},
        {"where": {"tags": ["river"]}},
        {"top": 3},
        {"mode": "bm25"},
        {"mode": "hybrid"},
        {"mode": "hybrid", "settings": SearchSettings(fusion="weighted", weight=0.1)},
        {"exact": True, "top": 30},
        {"settings": SearchSettings(rank_by="vectors")},
        {"settings": SearchSettings(vector_share=0.5)},
        {},
    ]
    expected = [many.index.search_many(["river"], **how) for how in hows]
    held = Held(encoding.encode_questions)
    monkeypatch.setattr(encoding, "encode_questions", held)
    first = many.search(asking("king"))
    assert held.begun.wait(10)
    futures = [many.search(asking("river", **how)) for how in hows]
    held.free.set()
    first.result(10)
    assert [future.result(10) for future in futures] == expected


def test_a_search_that_fails_does_not_spoil_the_others(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = encoding.encode_questions

    def fragile(model: Any, texts: Sequence[str]) -> Any:
        if "poison" in texts:
            raise ZeroDivisionError
        return function(model, texts)

    held = Held(fragile)
    monkeypatch.setattr(encoding, "encode_questions", held)
    futures = [many.search(asking("king"))]
    assert held.begun.wait(10)
    futures += [many.search(asking(query)) for query in ("queen", "poison", "river")]
    held.free.set()
    assert all(futures[place].result(10)[0].hits for place in (0, 1, 3))
    with pytest.raises(ZeroDivisionError):
        futures[2].result(10)
    wrong = many.search(asking("king", where={"n": {"LIKE": 1}}))
    with pytest.raises(QueryError):
        wrong.result(10)


# --- writing


def test_changes_are_made_in_their_order(many: ServedIndex) -> None:
    futures: list[Future[Any]] = [
        many.put([Document("a", "first")]),
        many.put([Document("a", "second"), Document("b", "moon")]),
        many.delete("a"),
        many.delete("a"),
        many.put([Document("a", "third")]),
        many.put([Document("a", "third")]),
        many.delete("b"),
    ]
    assert [future.result(10) for future in futures] == [
        Added(added=1),
        Added(added=1, updated=1),
        True,
        False,
        Added(added=1),
        Added(unchanged=1),
        True,
    ]
    assert many.get("a").result(10) == Document("a", "third")
    assert many.get("b").result(10) is None


def test_changes_that_wait_are_committed_together(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(encoding.encode_documents)
    monkeypatch.setattr(encoding, "encode_documents", held)
    futures: list[Future[Any]] = [many.put([Document("first", "moon")])]
    assert held.begun.wait(10)
    futures += [many.put([Document(f"n{number}", f"sun {number}")]) for number in range(10)]
    futures += [many.delete(f"n{number}") for number in range(3)]
    held.free.set()
    assert [future.result(10) for future in futures] == [Added(added=1)] * 11 + [True] * 3
    assert [len(given) for given in held.given] == [1, 10]
    assert many.count().result(10) == len(DOCUMENTS) + 8


def test_a_document_that_fails_does_not_spoil_the_others(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = encoding.encode_documents

    def fragile(model: Any, documents: Sequence[Document], *others: Any) -> Any:
        if "poison" in {document.text for document in documents}:
            raise ZeroDivisionError
        return function(model, documents, *others)

    held = Held(fragile)
    monkeypatch.setattr(encoding, "encode_documents", held)
    futures = [many.put([Document("first", "moon")])]
    assert held.begun.wait(10)
    futures += [many.put([Document(text, text)]) for text in ("sun", "poison", "star")]
    held.free.set()
    assert [futures[place].result(10) for place in (0, 1, 3)] == [Added(added=1)] * 3
    with pytest.raises(ZeroDivisionError):
        futures[2].result(10)
    assert many.get("star").result(10)
    assert many.get("poison").result(10) is None


def test_a_change_that_nobody_waits_for_any_more_is_not_begun(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(encoding.encode_documents)
    monkeypatch.setattr(encoding, "encode_documents", held)
    first = many.put([Document("first", "moon")])
    assert held.begun.wait(10)
    second, third = many.put([Document("b", "sun")]), many.delete("id 1")
    assert second.cancel()
    assert not first.cancel()
    held.free.set()
    assert third.result(10)
    assert many.get("first").result(10)
    assert many.get("b").result(10) is None


def test_questions_are_answered_while_documents_are_encoded(
    many: ServedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(encoding.encode_documents)
    monkeypatch.setattr(encoding, "encode_documents", held)
    write = many.put([Document("slow", "moon")])
    assert held.begun.wait(10)
    assert many.search(asking("king")).result(10)[0].hits
    assert many.get("id 1").result(10)
    assert many.explain("king", "id 1").result(10)
    assert not write.done()
    held.free.set()
    assert write.result(10) == Added(added=1)


def test_close_finishes_what_was_taken(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    many = ServedIndex(served, Metrics())
    held = Held(encoding.encode_documents)
    monkeypatch.setattr(encoding, "encode_documents", held)
    futures = [many.put([Document(f"n{number}", "moon")]) for number in range(5)]
    assert held.begun.wait(10)
    closing = threading.Thread(target=many.close)
    closing.start()
    held.free.set()
    closing.join(20)
    assert sum(future.result(0).added for future in futures) == 5
    assert len(served) == len(DOCUMENTS) + 5


def test_searches_see_one_state_while_documents_change(served: Index) -> None:
    """Two documents always change together; whoever looks must find both, and of one version."""
    versions = 40

    def pair(version: int) -> bytes:
        return lines(
            *(
                {"id": f"{half}", "text": f"castle garden {half} {version}", "version": version}
                for half in ("left", "right")
            )
        )

    with running(served) as service:
        assert service.ask("POST", "/documents", pair(0), kind=LINES).status == 200
        done = threading.Event()
        seen: list[int] = []

        def look(mode: str) -> None:
            newest = -1
            while not done.is_set():
                where = {"id": ["left", "right"]}
                (answer,) = service.search("castle garden", mode=mode, where=where)
                found = sorted((hit["id"], hit["metadata"]["version"]) for hit in answer["hits"])
                assert [id_ for id_, _ in found] == ["left", "right"], found
                assert found[0][1] == found[1][1], found
                assert all(str(found[0][1]) in hit["text"] for hit in answer["hits"])
                assert found[0][1] >= newest, "time goes forward"
                newest = found[0][1]
                seen.append(newest)

        with ThreadPoolExecutor(3) as pool:
            lookers = [pool.submit(look, mode) for mode in ("dense", "bm25", "hybrid")]
            for version in range(1, versions):
                reply = service.ask("POST", "/documents", pair(version), kind=LINES)
                assert reply.json["updated"] == 2
                # What was acknowledged is what the next question finds.
                (answer,) = service.search("castle", where={"version": version})
                assert len(answer["hits"]) == 2
            done.set()
            for looker in lookers:
                looker.result()
    assert len(set(seen)) > 5


# --- small parts


def test_together_does_each_alone_only_if_it_helps() -> None:
    calls: list[list[int]] = []

    def work(jobs: Sequence[int]) -> list[int]:
        calls.append(list(jobs))
        if 13 in jobs:
            raise ValueError("13")
        if 99 in jobs:
            raise IndexLockedError("locked")
        return [2 * job for job in jobs]

    assert run_batch([1, 2], work) == [2, 4]
    first, failed, last = run_batch([1, 13, 3], work)
    assert (first, last) == (2, 6)
    assert isinstance(failed, ValueError)
    assert calls == [[1, 2], [1, 13, 3], [1], [13], [3]]
    assert all(isinstance(one, IndexLockedError) for one in run_batch([1, 99], work))
    assert calls[-1] == [1, 99]


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pseudoquery.service.served_index.LOCK_PATIENCE", 0.05)
    tries = []

    def locked() -> None:
        tries.append(1)
        raise IndexLockedError("locked")

    with pytest.raises(IndexLockedError):
        retry_while_locked(locked)
    assert len(tries) > 1


def test_the_name_of_a_model_in_memory(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    many = ServedIndex(Index.create(tmp_path / "index", model=tiny_model), Metrics())
    assert many.facts().result(10)["model"] == ""
    many.close()
