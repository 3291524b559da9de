"""Clients that open connections and send nothing, or something that is not HTTP."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest

from pseudoquery.index import Index
from pseudoquery.service import connections as connections_module
from pseudoquery.service.connections import Connections, affordable_connections
from pseudoquery.service.errors import Refused
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.recorder import SECURITY_HEADERS
from tests.support.serving import Forks, Reply, Running, running

HEAD = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
SEARCH = HEAD + b"Content-Type: application/json\r\n"
QUESTION = b'{"query": "king"}'


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        yield connection


def read_reply(connection: socket.socket) -> Reply:
    """Read one response, and nothing after it."""
    response = HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other side closes the connection and sends nothing more."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


def check_envelope(reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.code) == (status, code)
    assert SECURITY_HEADERS.items() <= reply.headers.items()
    assert reply.headers["connection"] == "close"


# --- clients that do not go on


@pytest.fixture
def impatient(served: Index) -> Iterator[Running]:
    with running(served, head_seconds=0.3) as service:
        yield service


def test_a_client_that_sends_nothing_is_let_go(impatient: Running) -> None:
    with connected(impatient.port) as connection:
        assert is_closed(connection)


@pytest.mark.parametrize("sent", [b"G", HEAD, SEARCH + b"Content-Length: 17\r\n"])
def test_a_head_that_does_not_end(impatient: Running, sent: bytes) -> None:
    with connected(impatient.port) as connection:
        connection.sendall(sent)
        reply = read_reply(connection)
        check_envelope(reply, 408, "timeout")
        assert reply.message == "the head of the request did not come within 0.3 seconds."
        assert is_closed(connection)


def test_a_head_that_comes_drop_by_drop(impatient: Running) -> None:
    with connected(impatient.port) as connection:
        connection.settimeout(0.01)
        received = b""
        connection.sendall(HEAD)
        end = time.monotonic() + 20
        while not received and time.monotonic() < end:
            connection.sendall(b"X")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_second_head_that_does_not_end(impatient: Running) -> None:
    """Also after an answer, and when both came together."""
    whole = SEARCH + b"Content-Length: 17\r\n\r\n" + QUESTION
    for first, second in [(whole, HEAD), (whole + HEAD, b"")]:
        with connected(impatient.port) as connection:
            connection.sendall(first)
            assert read_reply(connection).status == 200
            connection.sendall(second)
            assert read_reply(connection).status == 408
            assert is_closed(connection)


def test_a_body_that_drips_on_after_a_refusal(
    impatient: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pseudoquery.service.exchange.DRAINED_SECONDS", 0.05)
    with connected(impatient.port) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        assert read_reply(connection).status == 415
        end = time.monotonic() + 20
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(0.01)
        assert time.monotonic() < end


def test_a_request_may_take_longer_than_its_head(served: Index) -> None:
    with running(served, head_seconds=0.2, seconds=30) as service, connected(service.port) as one:
        one.sendall(SEARCH + b"Content-Length: 17\r\n\r\n")
        time.sleep(0.6)
        one.sendall(QUESTION)
        assert read_reply(one).status == 200


# --- too many connections


def test_who_has_waited_longest_gives_way(served: Index) -> None:
    with running(served, connections=3) as service, ExitStack() as stack:
        silent = [stack.enter_context(connected(service.port)) for _ in range(3)]
        silent[0].sendall(HEAD)
        while service.ask("GET", "/healthz").status != 200:  # in the place of one of them
            pass
        reply = read_reply(silent[0])
        check_envelope(reply, 429, "overloaded")
        assert reply.headers["retry-after"] == "1"
        assert is_closed(silent[0])
        samples = service.ask("GET", "/metrics").content.decode()
        assert 'pseudoquery_connections_closed_total{reason="too_many"}' in samples
        assert "pseudoquery_connections 3.0" in samples


def test_a_request_gives_way_to_nobody(served: Index) -> None:
    with running(served, connections=2) as service, ExitStack() as stack:
        busy = [stack.enter_context(connected(service.port)) for _ in range(2)]
        for connection in busy:
            connection.sendall(SEARCH + b"Content-Length: 17\r\n\r\n")
        wait_for_requests(service, 2)
        with connected(service.port) as late:
            assert is_closed(late)
        for connection in busy:
            connection.sendall(QUESTION)
            assert read_reply(connection).status == 200


def wait_for_requests(service: Running, count: int) -> None:
    end = time.monotonic() + 20
    gauge = service.parts.metrics.in_progress
    while next(iter(gauge.collect())).samples[0].value < count:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_half_open_connections_do_not_end_a_service_with_few_files(
    template: Path, tmp_path: Path
) -> None:
    """There are twice as many as the service may have files open, and nobody sends a request."""
    log = tmp_path / "log"
    forks = Forks(log)
    try:
        resource.prlimit(forks.program_id, resource.RLIMIT_NOFILE, (160, 160))
        pid, url = forks.start(Path(shutil.copytree(template, tmp_path / "index")))
        service = Running(int(url.rpartition(":")[2]))
        with ExitStack() as stack:
            for _ in range(320):
                stack.enter_context(connected(service.port)).sendall(HEAD)
            for _ in range(3):
                assert service.search("king", top=1)[0]["hits"]
                assert service.ask("PUT", "/documents/new", {"text": "moon"}).status == 200
        assert forks.end(pid, signal.SIGTERM) == 0
    finally:
        forks.close()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    closed = next(event for event in events if event["event"] == "connections_closed")
    assert closed["too_many"] >= 1
    fewer = next(event for event in events if event["event"] == "fewer_connections")
    assert fewer["limit"] == closed["limit"] < 80
    assert not [event for event in events if event["level"] == "error"]


class Ended:
    """A connection that only notes that it was ended."""

    refused: Refused | None = None

    def end(self, refused: Refused) -> None:
        self.refused = refused


def test_many_closed_connections_are_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "pseudoquery.service")
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    connections = Connections(1, Metrics())

    def overflow() -> None:
        connection = Ended()
        connections.admit(connection)
        connections.wait(connection)

    for _ in range(6):
        overflow()
    assert len(caplog.records) == 1
    now += connections_module.LOG_SECONDS
    overflow()
    assert [vars(record)["facts"]["too_many"] for record in caplog.records] == [1, 5]


def test_the_limit_on_files_leaves_half_to_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("0")] * 60))
    for hard, expected in ((160, 50), (10_000, 1000), (61, 1), (resource.RLIM_INFINITY, 1000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (60, hard))
        assert affordable_connections(1000) == expected


# --- what is not HTTP


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GARBAGE\r\n\r\n",
    b"GET /healthz\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /health z HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\0: y\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    SEARCH + b"Content-Length: x\r\n\r\n",
    SEARCH + b"Content-Length: -1\r\n\r\n",
    SEARCH + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    SEARCH + b"Transfer-Encoding: gzip\r\n\r\n",
    SEARCH + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    SEARCH + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
]


@pytest.mark.parametrize("sent", MALFORMED, ids=ascii)
def test_what_is_not_http_gets_the_envelope(shared: Running, sent: bytes) -> None:
    with connected(shared.port) as connection:
        connection.sendall(sent)
        reply = read_reply(connection)
        check_envelope(reply, 400, "bad_request")
        assert reply.message == "the request is not valid HTTP/1.1."
        assert is_closed(connection)
    assert b'connections_closed_total{reason="malformed"}' in shared.ask("GET", "/metrics").content


def test_a_head_that_is_too_large(shared: Running) -> None:
    with connected(shared.port) as connection:
        connection.sendall(HEAD + b"X: " + b"x" * 70_000)
        check_envelope(read_reply(connection), 431, "too_large")


def test_what_is_not_http_after_an_answer_has_begun(shared: Running) -> None:
    """There is no second answer, and no error inside the server."""
    with connected(shared.port) as connection:
        connection.sendall(SEARCH + b"Content-Length: 17\r\n\r\n" + QUESTION)
        assert read_reply(connection).status == 200
        connection.sendall(b"\r\n\r\n\x00\r\n\r\n")
        assert read_reply(connection).status == 400
        assert is_closed(connection)


@pytest.mark.parametrize(
    "head",
    [
        SEARCH + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        SEARCH + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
        SEARCH.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n",
        HEAD.replace(b"POST /search", b"GET /healthz")
        + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_body_that_ends_in_two_places_is_one_refused_request(
    shared: Running, head: bytes
) -> None:
    with connected(shared.port) as connection:
        connection.sendall(head + b"0\r\n\r\n" + b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = read_reply(connection)
        check_envelope(reply, 400, "bad_request")
        assert "in two ways" in reply.message
        assert is_closed(connection)
