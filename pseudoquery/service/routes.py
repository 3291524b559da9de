"""What each address of the service does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from pseudoquery.corpus.validation import check_document
from pseudoquery.errors import PseudoqueryError
from pseudoquery.records import Document
from pseudoquery.search.settings import SearchSettings, check_query
from pseudoquery.service.errors import RETRY, Refused, refusal
from pseudoquery.service.guard import LINES
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.schemas import (
    CompareAnswer,
    CompareRequest,
    DeleteAnswer,
    DocumentAnswer,
    DocumentBody,
    ErrorAnswer,
    ExplainAnswer,
    ExplainRequest,
    InfoAnswer,
    MapAnswer,
    MapRequest,
    SearchRequest,
    StateAnswer,
    WriteAnswer,
    document_answer,
    explain_answer,
    map_answer,
    query_answer,
)
from pseudoquery.service.served_index import SearchJob, ServedIndex
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.service.uploads import add_counts, check_size, uploaded_batches, uploaded_documents
from pseudoquery.storage.filters import compile_filter
from pseudoquery.version import VERSION

MOST_CONDITIONS = 50
"""Comparisons in a filter: SQLite nests an expression only so deep."""
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The body can't be read.",
        401: "A token is needed.",
        403: "The token does not allow this.",
        408: "The request came too slowly.",
        413: "The body or a document is too large.",
        415: "The body is of another kind.",
        421: "The service is known by another name.",
        422: "Something in the request can't be used; the message says what.",
        429: "Too many requests at once; try again after Retry-After seconds.",
        500: "An error inside the service.",
        503: "The index is being written to by another process, or can't be used.",
        504: "It took too long.",
    }.items()
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorAnswer, "description": "There is no such document."}
}


# The guard checks tokens; this only describes them.
router = APIRouter(
    responses=FAILURES, dependencies=[Depends(HTTPBearer(auto_error=False, description="A token."))]
)


@dataclass(frozen=True, slots=True)
class Service:
    """What the addresses share."""

    index: ServedIndex
    settings: ServiceSettings
    watch: Metrics


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _document_id(
    request: Request,
    id: Annotated[  # noqa: A002, ARG001
        str, Path(description="Any text, percent-encoded: a slash is %2F.", examples=["bees"])
    ],
) -> str:
    """Decode the id strictly: the framework would turn what is not UTF-8 into another id."""
    _, _, encoded = request.scope["raw_path"].partition(b"/documents/")
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise Refused(422, "the id in the address is not valid UTF-8.") from None


TheService = Annotated[Service, Depends(_service)]
DocumentId = Annotated[str, Depends(_document_id)]
FirstLine = Annotated[
    int,
    Query(
        ge=1,
        le=1 << 53,
        description="Where the body begins in a file that is sent in parts: for messages.",
    ),
]


class SearchRoute(APIRoute):
    """The address that is asked most: FastAPI describes it, and has no more to do with it.

    Its own way from the bytes to a function and back takes as long as everything else together.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive)
        body = _search_request(await request.body())
        response = await search(body, request.app.state.service)
        await response(scope, receive, send)


def _search_request(content: bytes) -> SearchRequest:
    """Read a body, and refuse what FastAPI refuses at the other addresses."""
    try:
        return SearchRequest.model_validate(json.loads(content))
    except ValidationError as error:
        problems = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(problems) from None
    except json.JSONDecodeError as error:
        raise Refused(422, f"the body is not valid JSON: {error.msg}.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON.") from None


async def search(body: SearchRequest, service: TheService) -> Response:
    """Find the documents that best answer one question, or each of several."""
    queries = [body.query] if isinstance(body.query, str) else body.query
    _check_search(queries, body, service.settings)
    settings = SearchSettings(
        recall=body.recall,
        fusion=body.fusion,
        weight=body.weight,
        fusion_depth=body.fusion_depth,
    )
    asked = SearchJob(tuple(queries), body.top, body.where, body.exact, body.mode, settings)
    answers = await asyncio.wrap_future(service.index.search(asked))
    written = to_json({"answers": [query_answer(one, body.include_text) for one in answers]})
    return Response(written, media_type="application/json")


@router.post("/explain", summary="Show why a document matches", responses=NOT_FOUND)
async def explain(body: ExplainRequest, service: TheService) -> ExplainAnswer:
    """Show which passages made the document's pseudo queries, and how each matches a question."""
    _check_length(body.query, service.settings)
    explanation = await asyncio.wrap_future(service.index.explain(body.query, body.id))
    if explanation is None:
        raise _missing(body.id)
    return explain_answer(explanation)


@router.post("/compare", summary="Find documents in three ways")
async def compare(body: CompareRequest, service: TheService) -> CompareAnswer:
    """Find documents by pseudo queries, by words alone, and by one vector for each document."""
    _check_length(body.query, service.settings)
    _check_top(body.top, service.settings)
    asked = SearchJob((body.query,), body.top, {}, body.exact, body.mode, SearchSettings())
    by_words = replace(asked, mode="bm25")
    index = service.index
    (ours,), (words,), one_vector = await asyncio.gather(
        asyncio.wrap_future(index.search(asked)),
        asyncio.wrap_future(index.search(by_words)),
        asyncio.wrap_future(index.search_one_vector(body.query, body.top)),
    )
    ways = {"pseudo_queries": ours, "bm25": words, "one_vector": one_vector}
    return CompareAnswer.model_validate(
        {way: query_answer(answer, body.include_text) for way, answer in ways.items()}
    )


@router.post("/map", summary="Lay a document's pseudo queries out", responses=NOT_FOUND)
async def map_of_document(body: MapRequest, service: TheService) -> MapAnswer:
    """Project a document's pseudo queries, and a question, on the plane that shows most of them."""
    if body.query is not None:
        _check_length(body.query, service.settings)
    found = await asyncio.wrap_future(service.index.map(body.id, body.query))
    if found is None:
        raise _missing(body.id)
    return map_answer(found)


@router.put("/documents/{id:path}", summary="Add or replace a document")
async def put_document(id: DocumentId, body: DocumentBody, service: TheService) -> WriteAnswer:  # noqa: A002
    """Store a document; when this is answered, it is on disk."""
    if body.id not in (None, id):
        raise Refused(422, "the id in the body is not the one in the address.")
    document = Document(id, body.text, body.title, body.metadata)
    check_document(document)
    check_size(document, service.settings)
    added = await asyncio.wrap_future(service.index.put([document]))
    return WriteAnswer(**asdict(added))


@router.get("/documents/{id:path}", summary="Read a document", responses=NOT_FOUND)
async def get_document(id: DocumentId, service: TheService) -> DocumentAnswer:  # noqa: A002
    """Return a document as it is stored."""
    document = await asyncio.wrap_future(service.index.get(id))
    if document is None:
        raise _missing(id)
    return document_answer(document)


@router.delete("/documents/{id:path}", summary="Delete a document", responses=NOT_FOUND)
async def delete_document(id: DocumentId, service: TheService) -> DeleteAnswer:  # noqa: A002
    """Delete a document; when this is answered, it stays deleted."""
    if not await asyncio.wrap_future(service.index.delete(id)):
        raise _missing(id)
    return DeleteAnswer(deleted=id)


_LINES_SCHEMA = {
    "schema": {"type": "string"},
    "example": '{"id": "bees", "text": "A hive is led by a single queen.", "topic": "animals"}\n'
    '{"id": "bread", "title": "Sourdough", "text": "Wild yeast lives in the dough."}\n',
}


@router.post(
    "/documents",
    summary="Add or replace many documents",
    openapi_extra={"requestBody": {"required": True, "content": {LINES[0]: _LINES_SCHEMA}}},
)
async def add_documents(
    request: Request, service: TheService, first_line: FirstLine = 1
) -> WriteAnswer:
    """Store documents, one JSON object a line, as they come.

    They are stored batch by batch. If a line can't be used, the error names it, and says up to
    which line documents have been stored.
    """
    total = dict.fromkeys(("added", "updated", "unchanged", "cut"), 0)
    stored = first_line - 1
    try:
        documents = uploaded_documents(request, service.settings, first_line)
        async for batch in uploaded_batches(documents):
            added = await asyncio.wrap_future(service.index.put(one for _, one in batch))
            stored = batch[-1][0]
            total = add_counts(total, added)
    except (PseudoqueryError, Refused) as error:
        refused = refusal(error)
        upto = f"documents up to line {stored} have been stored" if stored else "nothing was stored"
        message = f"{refused.message.removesuffix('.')}; {upto}."
        raise Refused(refused.status_code, message, refused.code, refused.headers) from error
    return WriteAnswer(**total)


@router.get("/info", summary="Facts about the index, and the service's limits")
async def info(service: TheService) -> InfoAnswer:
    """Return the number of documents, the representation, the limits, and the like."""
    facts = await asyncio.wrap_future(service.index.facts())
    return InfoAnswer(version=VERSION, index=facts, limits=service.settings.limits())


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> StateAnswer:
    """Answer as long as the process can."""
    return StateAnswer(status="ok")


@router.get("/readyz", summary="Can it answer?")
async def readyz(service: TheService) -> StateAnswer:
    """Answer if the index can be read."""
    try:
        await asyncio.wrap_future(service.index.count())
    except PseudoqueryError as error:
        raise Refused(503, refusal(error).message, headers=RETRY) from error
    return StateAnswer(status="ok")


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: TheService) -> Response:
    """Return all figures in Prometheus' text format."""
    documents = await asyncio.wrap_future(service.index.count())
    return Response(service.watch.metrics(documents), media_type=CONTENT_TYPE_LATEST)


def _check_search(queries: list[str], body: SearchRequest, settings: ServiceSettings) -> None:
    if len(queries) > settings.queries:
        raise Refused(422, f"{len(queries)} queries; at most {settings.queries} are allowed.")
    for query in queries:
        _check_length(query, settings)
    _check_top(body.top, settings)
    conditions = body.where.values()
    if sum(len(one) if isinstance(one, dict) else 1 for one in conditions) > MOST_CONDITIONS:
        raise Refused(422, f"the filter has more than {MOST_CONDITIONS} conditions.")
    compile_filter(body.where)


def _check_top(top: int, settings: ServiceSettings) -> None:
    if top > settings.top:
        raise Refused(422, f"top is {top}; at most {settings.top} is allowed.")


def _check_length(query: str, settings: ServiceSettings) -> None:
    if len(query) > settings.query_characters:
        raise Refused(
            422,
            f"a query has {len(query):,} characters; "
            f"at most {settings.query_characters:,} are allowed.",
        )
    check_query(query)


def _missing(id: str) -> Refused:  # noqa: A002
    return Refused(404, f"there is no document with the id {id!r}.")
