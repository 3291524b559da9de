"""A client for the service that `pseudoquery serve` starts. It speaks in the library's records."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit
from weakref import finalize

import httpx

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import CorpusError, PseudoqueryError, QueryError, ServiceError
from pseudoquery.json_records import (
    added_from_dict,
    answer_from_dict,
    document_from_dict,
    document_to_dict,
    explanation_from_dict,
)
from pseudoquery.records import Added, Answer, Document, Explanation

if TYPE_CHECKING:
    from pseudoquery.storage.filters import Where

BULK_BYTES = 2 << 20
"""`add` sends documents in requests of about this size, so that an error is reported early."""
DEFAULT_TIMEOUT = 120.0
"""Seconds; the service gives up on a request earlier, and says so."""
POOL = httpx.Limits(max_connections=None, keepalive_expiry=2.0)
"""The service closes a connection that was idle for 5 seconds; the client must do so before it."""
_BAD_INPUT = (400, 413, 422)
Value = TypeVar("Value")


class _MissingDocumentError(QueryError):
    """The service has no such document."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: Any = None
    """Bytes are sent as they are, anything else as JSON."""
    bad_input: type[PseudoqueryError] = QueryError
    """The error to raise if the service can't use the body."""


class Client:
    """A client for the service that `pseudoquery serve` starts, with the methods of an index.

    A client keeps its connections open for the next call; `close`, or a `with` block, closes
    them. Threads can share a client. A process that was forked needs a client of its own.

    Examples:
        >>> with Client("http://localhost:8000") as client:  # doctest: +SKIP
        ...     client.add([Document("bees", "Bees keep warm by trembling around the queen.")])
        ...     client.search("How do bees survive the winter?").hits[0].id
        'bees'

    Args:
        url: The address of the service, such as http://localhost:8000.
        token: The token to send. By default, the client sends the one in the environment variable
            PSEUDOQUERY_TOKEN, if it is set.
        timeout: How many seconds to wait for the service.

    Raises:
        ServiceError: The address is not a URL, or the token can't be sent. Every method raises it
            too, if the service does not answer or refuses the request.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        self._url = url
        self._token = os.environ.get("PSEUDOQUERY_TOKEN", "") if token is None else token
        self._timeout = timeout
        self._address = _service_address(url)
        self._http = httpx.Client(
            headers=_authorization(self._token),
            timeout=timeout,
            limits=POOL,
            verify=ssl.create_default_context(),  # the certificates that this machine trusts
            trust_env=False,  # no proxy, no .netrc: the token goes to this address alone
        )
        self._closer = finalize(self, self._http.close)

    def __reduce__(self) -> tuple[Callable[..., Client], tuple[str, str]]:
        """Let copies and other processes open connections of their own."""
        return partial(Client, timeout=self._timeout), (self._url, self._token)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A closed client can't be used again."""
        self._closer()

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._url

    def search(self, query: str, top: int = 10, **how: Any) -> Answer:
        """Find the best documents for one question.

        Args:
            query: The question.
            top: How many documents to return.
            how: The other arguments of `search_many`.

        Returns:
            The documents, best first, and whether they are proven to be the exact best.

        Raises:
            QueryError: The question or a setting can't be used.

        Examples:
            >>> client.search("How do bees survive the winter?", top=1)  # doctest: +SKIP
        """
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
        """Find the best documents for each of several questions.

        Args:
            queries: The questions.
            top: How many documents to return for each question.
            where: Conditions on the metadata; see `Index.search`.
            exact: Whether to search until the answers are proven exact.
            mode: "dense" (by meaning), "bm25" (by words) or "hybrid" (by both).
            settings: Any of `rank_by`, `token_depth`, `vector_share`, `recall`, `fusion`, `weight`,
                `fusion_depth`, `min_relevance` and `include_text`.

        Returns:
            One answer per question, in the order of the questions.

        Raises:
            QueryError: A question or a setting can't be used.
        """
        body = {
            "query": list(queries),
            "top": top,
            "where": dict(where or {}),
            "exact": exact,
            "mode": mode,
            **settings,
        }
        return self._send(
            _Request("POST", "/search", body),
            lambda content: [answer_from_dict(answer) for answer in content["answers"]],
        )

    def explain(self, query: str, id: str) -> Explanation:  # noqa: A002
        """Explain why a document matches a question.

        Args:
            query: The question.
            id: The id of the document.

        Returns:
            The passages that made each pseudo query of the document, and how well each matches.

        Raises:
            QueryError: The question can't be used, or the index has no such document.
        """
        request = _Request("POST", "/explain", {"query": query, "id": id})
        return self._send(request, explanation_from_dict)

    def add(self, documents: Iterable[Document]) -> Added:
        """Add documents. A document whose id is already known replaces the old one.

        When this returns, all documents are on the service's disk. If it raises, the message says
        up to which document of the last request the service has stored them.

        Args:
            documents: The documents. They are read one by one, so there may be very many.

        Returns:
            How many documents were added, updated and left alone.

        Raises:
            CorpusError: A document can't be stored.
        """
        total = Added()
        for body in _bulk_bodies(documents):
            request = _Request("POST", "/documents", body, CorpusError)
            total += self._send(request, added_from_dict)
        return total

    def put(self, document: Document) -> Added:
        """Add one document, or replace the one that has its id.

        Args:
            document: The document.

        Returns:
            Whether the document was added, updated or left alone, as counts.

        Raises:
            CorpusError: The document can't be stored.
        """
        check_document(document)
        body = document_to_dict(document)
        request = _Request("PUT", _document_path(document.id), body, CorpusError)
        return self._send(request, added_from_dict)

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Read a document.

        Args:
            id: The id of the document.

        Returns:
            The document, or None if the index has no such document.
        """
        try:
            return self._send(_Request("GET", _document_path(id)), document_from_dict)
        except _MissingDocumentError:
            return None

    def delete(self, id: str) -> bool:  # noqa: A002
        """Delete a document.

        Args:
            id: The id of the document.

        Returns:
            Whether the index had such a document.
        """
        request = _Request("DELETE", _document_path(id))
        try:
            return self._send(request, lambda content: content["deleted"] is not None)
        except _MissingDocumentError:
            return False

    def info(self) -> dict[str, Any]:
        """Return facts about the service and its index, and the service's limits."""
        return self._send(_Request("GET", "/info"), lambda content: {**content})

    def ready(self) -> bool:
        """Return whether the service answers and can read its index."""
        request = _Request("GET", "/readyz")
        try:
            return self._send(request, lambda content: bool(content["status"] == "ok"))
        except ServiceError:
            return False

    def _send(self, request: _Request, read: Callable[[Any], Value]) -> Value:
        """Send a request and read the answer. A refusal is raised with the service's message."""
        response = self._respond(request)
        status = response.status_code
        try:
            content = json.loads(response.content)
            if status == 200:
                return read(content)
            code, message = content["error"]["code"], content["error"]["message"]
        except (ValueError, KeyError, TypeError):
            raise ServiceError(
                f"{self._address} answered {status}, but not as pseudoquery does; "
                "check the address.",
                status,
            ) from None
        if code == "not_found":
            raise _MissingDocumentError(message)
        if status in _BAD_INPUT:
            raise request.bad_input(message)
        raise ServiceError(message, status, code)

    def _respond(self, request: _Request) -> httpx.Response:
        if self._http.is_closed:
            raise ServiceError("this client is closed; make another one.")
        content, headers = request.body, {}
        if isinstance(content, bytes):
            headers["Content-Type"] = "application/x-ndjson"
        elif content is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(content).encode()
        address = self._address + request.path
        try:
            return self._http.request(request.method, address, content=content, headers=headers)
        except httpx.InvalidURL:
            raise request.bad_input("the id is too long to be sent in an address.") from None
        except httpx.HTTPError as error:
            raise ServiceError(
                f"no answer from {self._address} ({_reason(error)}); is the service running there?"
            ) from error


def _service_address(url: str) -> str:
    """Check the URL of a service, and leave out a name and a password, which nobody asks for."""
    try:
        parts = urlsplit(url)
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        address = str(httpx.URL(parts.geturl())).rstrip("/") if known else ""
    except (ValueError, httpx.InvalidURL):
        address = ""
    if not address:
        raise ServiceError(f"{url!r} is not the URL of a service; write http://host:port.")
    return address


def _authorization(token: str) -> dict[str, str]:
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ServiceError("the token has a character that can't be sent; tokens are plain ASCII.")
    return {"Authorization": f"Bearer {token}"}


def _reason(error: BaseException) -> str:
    """Say why a request failed, in the system's words where there are any."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__
    return str(error) or type(error).__name__


def _bulk_bodies(documents: Iterable[Document]) -> Iterator[bytes]:
    """Write documents as lines of JSON, in pieces that are small enough to send at once."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        check_document(document)
        line = json.dumps(document_to_dict(document)).encode() + b"\n"
        if lines and size + len(line) > BULK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield b"".join(lines)


def _document_path(id: str) -> str:  # noqa: A002
    try:
        # Dots too: a path that ends with /.. is another path.
        return f"/documents/{quote(id, safe='').replace('.', '%2E')}"
    except UnicodeEncodeError:
        raise QueryError(f"{id!r} is not valid Unicode (a lone surrogate).") from None
