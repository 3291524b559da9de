"""A client for the service of `pseudoquery serve`, that speaks in the library's own records.

client = Client("http://localhost:8000", token="...")
client.add([Document("a", "Paris is the capital of France.")])
client.search("What is France's capital?").hits[0].id

It needs nothing but Python. Each call has a connection of its own, so threads can share a client.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import CorpusError, PseudoqueryError, QueryError, ServiceError
from pseudoquery.records import Answer, Document, Explanation, Hit, PseudoQuery, Span

if TYPE_CHECKING:
    from pseudoquery.records import Added
    from pseudoquery.storage.filters import Where

BULK_BYTES = 2 << 20
"""Documents are sent in requests of about this size, so that an error is heard soon."""
LONGEST_WAIT = 120.0
"""Seconds; longer than the service takes to say that it took too long."""
_BAD_INPUT = (400, 413, 422)
_COUNTS = ("added", "updated", "unchanged", "cut")
Found = TypeVar("Found")


class _NotThereError(QueryError):
    """There is no such document."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: Any = None
    """Bytes as they are, anything else as JSON."""
    bad_input: type[PseudoqueryError] = QueryError
    """What to raise if the service can't use what it was sent."""


class Client:
    """A service of `pseudoquery serve`, with the methods of an index.

    Threads can share a client.

    Examples:
        >>> client = Client("http://localhost:8000")
        >>> client.search("How do insects survive the cold?").hits[0].id  # doctest: +SKIP
        'bees'

    Args:
        url: The address of the service.
        token: What the service asks for; by default the environment variable PSEUDOQUERY_TOKEN.
        timeout: How many seconds to wait for an answer.

    Every method raises `ServiceError` if the service does not answer or refuses.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = LONGEST_WAIT
    ) -> None:
        """Without a token, the one in the environment variable PSEUDOQUERY_TOKEN is used."""
        self._url = urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ServiceError(f"{url!r} is not the URL of a service; write http://host:port.")
        self._token = token if token is not None else os.environ.get("PSEUDOQUERY_TOKEN", "")
        self._timeout = timeout

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._url.geturl()

    def search(self, query: str, top: int = 10, **how: Any) -> Answer:
        """Find the best documents for one question; the arguments are those of `search_many`."""
        return self.search_many([query], top, **how)[0]

    def search_many(
        self,
        queries: Sequence[str],
        top: int = 10,
        *,
        where: Where | None = None,
        exact: bool = False,
        mode: str = "dense",
        **settings: Any,
    ) -> list[Answer]:
        """Find the best documents for each question, in order.

        Args:
            queries: The questions.
            top: How many documents to return for each.
            where: Conditions on the metadata; see `Index.search`.
            exact: Search until the answers are proven exact.
            mode: "dense", "bm25" or "hybrid".
            settings: Also `fusion`, `weight`, `recall`, `fusion_depth` and `include_text`.
        """
        asked = {
            "query": list(queries),
            "top": top,
            "where": dict(where or {}),
            "exact": exact,
            "mode": mode,
            **settings,
        }
        return self._ask(_Request("POST", "/search", asked), _answers)

    def explain(self, query: str, id: str) -> Explanation:  # noqa: A002
        """Show which passages made a document's pseudo queries, and how each matches a question."""
        return self._ask(_Request("POST", "/explain", {"query": query, "id": id}), _explanation)

    def add(self, documents: Iterable[Document]) -> Added:
        """Add documents; one whose id is known replaces the old one. When this returns, all are
        on disk.
        """
        total = _added(dict.fromkeys(_COUNTS, 0))
        for body in _bodies(documents):
            done = self._ask(_Request("POST", "/documents", body, CorpusError), _added)
            total = _added({name: getattr(total, name) + getattr(done, name) for name in _COUNTS})
        return total

    def put(self, document: Document) -> Added:
        """Add or replace one document."""
        check_document(document)
        return self._ask(
            _Request("PUT", _path(document.id), _record(document), CorpusError), _added
        )

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document with this id, or None."""
        return self._ask_if_there(_Request("GET", _path(id)), _document)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Delete a document; returns whether it was there."""
        request = _Request("DELETE", _path(id))
        return self._ask_if_there(request, lambda found: found["deleted"]) is not None

    def info(self) -> dict[str, Any]:
        """Return facts about the service and its index, and the limits in force."""
        return self._ask(_Request("GET", "/info"), lambda found: {**found})

    def ready(self) -> bool:
        """Return whether the service can answer."""
        try:
            return self._ask(
                _Request("GET", "/readyz"), lambda found: bool(found["status"] == "ok")
            )
        except ServiceError:
            return False

    def _ask_if_there(self, request: _Request, read: Callable[[Any], Found]) -> Found | None:
        """Ask for something that may not be there."""
        try:
            return self._ask(request, read)
        except _NotThereError:
            return None

    def _ask(self, request: _Request, read: Callable[[Any], Found]) -> Found:
        """Send one request; what the service refuses is raised in its own words."""
        status, content = self._send(request)
        try:
            answer = json.loads(content)
            if status == 200:
                return read(answer)
            code, message = answer["error"]["code"], answer["error"]["message"]
        except (ValueError, KeyError, TypeError):
            raise ServiceError(
                f"{self._url.geturl()} answered {status}, but not as pseudoquery does; "
                "check the address.",
                status,
            ) from None
        if status == 404:
            raise _NotThereError(message)
        if status in _BAD_INPUT:
            raise request.bad_input(message)
        raise ServiceError(message, status, code)

    def _send(self, request: _Request) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        body = request.body
        if body is not None:
            lines = isinstance(body, bytes)
            headers["Content-Type"] = "application/x-ndjson" if lines else "application/json"
            body = body if lines else json.dumps(body).encode()
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        host = self._url.hostname or ""
        try:
            with closing(kind(host, self._url.port, timeout=self._timeout)) as connection:
                path = self._url.path.rstrip("/") + request.path
                connection.request(request.method, path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServiceError(
                f"no answer from {self._url.geturl()} ({reason}); is the service running there?"
            ) from error


def _bodies(documents: Iterable[Document]) -> Iterator[bytes]:
    """Write documents as lines of JSON, in pieces that are small enough to send at once."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        check_document(document)
        line = json.dumps(_record(document)).encode() + b"\n"
        if lines and size + len(line) > BULK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield b"".join(lines)


def _record(document: Document) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
    }


def _path(id: str) -> str:  # noqa: A002
    try:
        return f"/documents/{quote(id, safe='')}"
    except UnicodeEncodeError:
        raise QueryError(f"{id!r} is not valid Unicode (a lone surrogate).") from None


def _added(found: Mapping[str, int]) -> Added:
    from pseudoquery.records import Added

    return Added(**{name: found[name] for name in _COUNTS})


def _answers(found: Mapping[str, Any]) -> list[Answer]:
    return [_answer(one) for one in found["answers"]]


def _answer(found: Mapping[str, Any]) -> Answer:
    hits = [
        Hit(
            hit["id"],
            _score(hit["score"]),
            hit["title"],
            hit["text"] or "",
            hit["metadata"],
            tuple(hit["weights"]),
        )
        for hit in found["hits"]
    ]
    return Answer(found["query"], tuple(hits), found["certified"], found["candidates"])


def _explanation(found: Mapping[str, Any]) -> Explanation:
    return Explanation(
        found["query"],
        _document(found["document"]),
        _score(found["score"]),
        tuple(
            PseudoQuery(one["weight"], one["similarity"], tuple(map(_span, one["spans"])))
            for one in found["pseudo_queries"]
        ),
        _span(found["passage"]) if found["passage"] else None,
    )


def _document(found: Mapping[str, Any]) -> Document:
    return Document(found["id"], found["text"], found["title"], found["metadata"])


def _span(found: Mapping[str, int]) -> Span:
    return Span(found["start"], found["end"])


def _score(score: float | None) -> float:
    return float("-inf") if score is None else score
