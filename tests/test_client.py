"""The client says what the library says, and raises what the service refuses in its words."""

from __future__ import annotations

import copy
import http.server
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pseudoquery
from pseudoquery import client as client_module
from pseudoquery.client import Client
from pseudoquery.errors import CorpusError, PseudoqueryError, QueryError, ServiceError
from pseudoquery.index import Index
from pseudoquery.records import Added, Answer, Document
from pseudoquery.search.settings import SearchSettings
from tests.support.collection import DOCUMENTS
from tests.support.serving import READ, WRITE, Running, running


@pytest.fixture
def service(served: Index) -> Iterator[Running]:
    with running(served) as started:
        yield started


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.url) as opened:
        yield opened


def same(found: Answer, expected: Answer) -> bool:
    """Equal but for the last digits, which depend on what is encoded together."""
    scores, wanted = ([hit.score for hit in answer.hits] for answer in (found, expected))
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)
    plain = [
        replace(answer, hits=tuple(replace(hit, score=0.0, weights=()) for hit in answer.hits))
        for answer in (found, expected)
    ]
    return plain[0] == plain[1]


def test_search(client: Client, served: Index) -> None:
    assert same(client.search("king"), served.search("king"))
    where = {"n": {"<": 12}, "tags": ["river", "all"]}
    hows: list[dict[str, Any]] = [
        {"where": where},
        {"exact": True},
        {"mode": "bm25"},
        {"mode": "hybrid"},
    ]
    for how in hows:
        found = client.search_many(["king", "bird song"], 3, **how)
        expected = served.search_many(["king", "bird song"], 3, **how)
        assert all(map(same, found, expected))
    assert client.search("king", top=1, include_text=False).hits[0].text == ""
    by_vectors = client.search("king", rank_by="vectors", recall=1, top=1)
    assert by_vectors.candidates < 30
    assert (by_vectors.ranked_by, client.search("king").ranked_by) == ("vectors", "tokens")
    few = client.search("king", top=1, token_depth=2)
    assert (few.candidates, few.certified, few.candidates_proven) == (2, False, True)
    tokens = served.search("king", settings=SearchSettings(vector_share=0.0))
    assert same(client.search("king", vector_share=0.0), tokens)


def test_explain(client: Client, served: Index) -> None:
    found, expected = client.explain("king", "id 3"), served.explain("king", "id 3")
    assert found.document == expected.document
    assert found.passage == expected.passage
    assert found.score == pytest.approx(expected.score)
    assert [one.spans for one in found.pseudo_queries] == [
        one.spans for one in expected.pseudo_queries
    ]
    client.put(Document("nothing", ""))
    assert client.explain("king", "nothing") == served.explain("king", "nothing")


@pytest.mark.parametrize("id_", ["a", "a/b", "..", "ü?#%2F", "\0", "a\nb\n", "\r\n", " "])
def test_documents(client: Client, served: Index, id_: str) -> None:
    document = Document(id_, "moon\nsun", "title", {"n": [1, {"deep": None}]})
    assert client.get(id_) is None
    assert not client.delete(id_)
    assert client.put(document) == Added(added=1)
    assert client.get(id_) == served.get(id_) == document
    assert client.put(document) == Added(unchanged=1)
    assert client.delete(id_)
    assert served.get(id_) is None


def test_an_address_that_is_no_service_has_no_documents_to_miss(service: Running) -> None:
    client = Client(f"{service.url}/elsewhere")
    for ask in (client.get, client.delete):
        with pytest.raises(ServiceError, match="nothing at this address"):
            ask("id 1")


def test_an_id_that_is_too_long(client: Client, served: Index) -> None:
    long = Document("ü" * 8000, "moon")
    assert client.put(long) == Added(added=1)
    assert client.get(long.id) == long
    assert client.delete(long.id)
    longer = replace(long, id="ü" * 8001)
    for ask in (client.put, lambda document: client.add([document])):
        with pytest.raises(CorpusError, match="the id has 16,002 bytes; at most 16,000 are"):
            ask(longer)
    for ask_by_id in (client.get, client.delete):
        assert not ask_by_id(longer.id)
        with pytest.raises(QueryError, match="too long to be sent"):
            ask_by_id("ü" * 20_000)


def test_add_in_several_requests(
    client: Client, served: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "BULK_BYTES", 500)
    documents = [Document(f"n{number}", "moon " * number) for number in range(30)]
    assert client.add(iter(documents)) == Added(added=30)
    changed = [replace(documents[0], text="sun"), *documents[1:]]
    assert client.add(changed) == Added(updated=1, unchanged=29)
    assert client.add([]) == Added()
    assert list(served.documents())[-30:-1] == documents[1:]


def test_info_and_ready(client: Client) -> None:
    assert client.info()["index"]["documents"] == len(DOCUMENTS)
    assert client.ready()
    assert not Client("http://127.0.0.1:1").ready()


def test_what_the_service_refuses(client: Client, service: Running) -> None:
    with pytest.raises(QueryError, match=r"^the query is empty; ask at least one word\.$"):
        client.search(" ")
    with pytest.raises(QueryError, match="there is no document with the id 'x'"):
        client.explain("king", "x")
    with pytest.raises(QueryError, match="at most 100"):
        client.search("king", 1000)
    with pytest.raises(QueryError, match="magic: "):
        client.search("king", magic=1)
    with pytest.raises(CorpusError, match="1,000,001 characters; at most 1,000,000"):
        client.put(Document("a", "x" * 1_000_001))
    with pytest.raises(CorpusError, match="line 2: the document 'b' has 1,000,001 characters"):
        client.add([Document("a", "x"), Document("b", "x" * 1_000_001)])


def test_what_can_not_be_sent(client: Client) -> None:
    with pytest.raises(CorpusError, match=r"docs\.jsonl line 3: the text has the lone surrogate"):
        client.put(Document("a", "\ud800", origin="docs.jsonl line 3"))
    with pytest.raises(CorpusError, match="lone surrogate"):
        client.add([Document("a", "\ud800")])
    for ask in (client.get, client.delete):
        with pytest.raises(QueryError, match="not valid Unicode"):
            ask("\ud800")


def test_tokens(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(served, read_tokens=(READ,), write_tokens=(WRITE,)) as service:
        with pytest.raises(ServiceError, match="send a token") as raised:
            Client(service.url).search("king")
        assert (raised.value.status, raised.value.code) == (401, "unauthorized")
        assert Client(service.url).ready()
        reader = Client(service.url, READ)
        assert reader.search("king").hits
        with pytest.raises(ServiceError, match="write token") as raised:
            reader.delete("id 1")
        assert raised.value.status == 403
        assert Client(service.url, token=WRITE).delete("id 1")
        monkeypatch.setenv("PSEUDOQUERY_TOKEN", READ)
        assert Client(service.url).search("king").hits


def test_a_service_that_is_busy(served: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pseudoquery.service.served_index.LOCK_PATIENCE", 0.05)
    with running(served) as service, Index.open(served.folder).store.writer():
        with pytest.raises(ServiceError, match="another process is writing") as raised:
            Client(service.url).put(Document("a", "x"))
        assert (raised.value.status, raised.value.code) == (503, "locked")


def test_a_service_that_is_not_there() -> None:
    with pytest.raises(ServiceError, match=r"no answer from http://\S+:1 .*refused") as raised:
        Client("http://127.0.0.1:1").search("king")
    assert raised.value.status == 0
    for url in ("localhost:8000", "ftp://localhost", "http://", "", "http://a:x", "http://a:99999"):
        with pytest.raises(ServiceError, match="is not the URL of a service"):
            Client(url)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": "x"}'])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_something_else_that_answers(content: bytes, status: int) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    with pytest.raises(PseudoqueryError, match="not as pseudoquery does"):
        Client(f"http://127.0.0.1:{server.server_port}").get("a")
    thread.join()
    server.server_close()


def test_threads_share_a_client(client: Client, served: Index) -> None:
    expected = served.search("king")
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(same(client.search("king"), expected)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_the_package_has_it() -> None:
    assert pseudoquery.Client is Client


# --- connections


class Counting(http.server.BaseHTTPRequestHandler):
    """A service that is ready, and remembers the connections and the headers that it gets."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.server.headers = dict(self.headers)  # type: ignore[attr-defined]
        content = b'{"status": "ok"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def counting() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    server.connections = 0
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_calls_share_a_connection(counting: Any) -> None:
    with Client(f"http://127.0.0.1:{counting.server_port}") as client:
        assert all(client.ready() for _ in range(3))
        assert counting.connections == 1


def test_a_closed_client_says_so(counting: Any) -> None:
    client = Client(f"http://127.0.0.1:{counting.server_port}")
    assert client.ready()
    client.close()
    client.close()
    with pytest.raises(ServiceError, match="this client is closed"):
        client.info()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_its_own_connections(counting: Any, duplicate: Callable[[Any], Any]) -> None:
    url = f"http://127.0.0.1:{counting.server_port}"
    with Client(url, READ, timeout=7.0) as client, duplicate(client) as other:
        client.close()
        assert other.ready()
        assert other.url == url
        assert counting.headers["Authorization"] == f"Bearer {READ}"


def test_a_client_that_is_forgotten_closes_its_connections(counting: Any) -> None:
    client = Client(f"http://127.0.0.1:{counting.server_port}")
    pool = client._http
    assert client.ready()
    del client
    assert pool.is_closed


def test_no_proxy_gets_the_token(counting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Client(f"http://name:word@127.0.0.1:{counting.server_port}", READ) as client:
        assert client.ready()
    assert counting.headers["Authorization"] == f"Bearer {READ}"


@pytest.mark.parametrize("token", [f"{READ}\n", f"{READ} {READ}", f"{READ}ü", f"{READ}\0"])
def test_a_token_that_can_not_be_sent_is_not_shown(token: str) -> None:
    with pytest.raises(ServiceError, match="can't be sent") as raised:
        Client("http://127.0.0.1:1", token)
    assert READ not in str(raised.value)


def test_a_service_that_takes_too_long() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1) as client,
        pytest.raises(ServiceError, match=r"no answer from http://127.0.0.1:\d+ \(timed out\)"),
    ):
        client.info()
