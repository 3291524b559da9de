"""The addresses that search: search, explain, compare and map."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from pseudoquery.json_records import answer_to_dict
from pseudoquery.records import Answer
from pseudoquery.search.settings import SearchSettings, check_query
from pseudoquery.service.addresses import ReadingRoute
from pseudoquery.service.dependencies import (
    NOT_FOUND,
    CurrentService,
    Service,
    missing_document,
    new_router,
)
from pseudoquery.service.errors import SMALLER_SEARCH, Refused, too_large_answer
from pseudoquery.service.off_loop import json_response, off_loop, parse_body, respond
from pseudoquery.service.schemas import (
    CompareAnswer,
    CompareRequest,
    ExplainAnswer,
    ExplainRequest,
    MapAnswer,
    MapRequest,
    Metadata,
    SearchAnswer,
    SearchRequest,
    explain_answer,
    map_answer,
)
from pseudoquery.service.served_index import SearchJob
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.storage.filters import compile_filter

MAX_CONDITIONS = 50
"""How many comparisons a filter may have: SQLite limits how deep an expression nests."""
MAX_VALUES = 10_000
"""How many values the lists of a filter may have together."""

router = new_router(ReadingRoute)


class SearchRoute(ReadingRoute):
    """The busiest address. FastAPI describes it, but does not handle its requests.

    FastAPI's way from the bytes to a function and back takes as long as the rest of the request.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive)
        service: Service = request.app.state.service
        content = await request.body()
        read = partial(_read_search, content, service.settings)
        body = await off_loop(read, len(content))
        response = await search(body, service)
        await response(scope, receive, send)


def _read_search(content: bytes, settings: ServiceSettings) -> SearchRequest:
    """Read a body, and refuse what can't be answered."""
    request = _parse_search(content, settings)
    for query in _queries(request):
        _check_query(query, settings)
    _check_top(request.top, settings)
    _check_where(request.where)
    return request


def _parse_search(content: bytes, settings: ServiceSettings) -> SearchRequest:
    """Parse a body, and refuse what FastAPI refuses at the other addresses."""
    try:
        body = parse_body(content)
        queries = body.get("query") if isinstance(body, dict) else None
        if isinstance(queries, list) and len(queries) > settings.queries:
            raise Refused(422, f"{len(queries)} queries; at most {settings.queries} are allowed.")
        return SearchRequest.model_validate(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from None
    except json.JSONDecodeError as error:
        raise Refused(422, f"the body is not valid JSON: {error.msg}.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON.") from None


async def search(body: SearchRequest, service: CurrentService) -> Response:
    """Find the documents that best answer one question, or each of several."""
    settings = SearchSettings(
        recall=body.recall,
        rank_by=body.rank_by,
        token_depth=body.token_depth,
        vector_share=body.vector_share,
        fusion=body.fusion,
        weight=body.weight,
        fusion_depth=body.fusion_depth,
        min_relevance=body.min_relevance,
    )
    job = SearchJob(
        _queries(body), body.top, body.where, body.exact, body.mode, settings, body.include_text
    )
    answers = await asyncio.wrap_future(service.index.search(job))
    write = partial(_write_answers, answers, body.include_text, service.settings.response_bytes)
    size = sum(len(hit.text) for answer in answers for hit in answer.hits)
    return json_response(await off_loop(write, size))


def _write_answers(answers: Sequence[Answer], include_text: bool, limit: int) -> bytes:
    """Write the JSON of a SearchAnswer, without making one, and stop when it gets too large."""
    parts: list[bytes] = []
    size = 0
    for answer in answers:
        parts.append(to_json(answer_to_dict(answer, include_text)))
        size += len(parts[-1]) + 1
        if size > limit:
            raise too_large_answer(limit, SMALLER_SEARCH)
    return b'{"answers":[' + b",".join(parts) + b"]}"


router.add_api_route(
    "/search",
    search,
    methods=["POST"],
    summary="Find documents",
    response_model=SearchAnswer,
    route_class_override=SearchRoute,
)


@router.post(
    "/explain",
    summary="Explain why a document matches",
    response_model=ExplainAnswer,
    responses=NOT_FOUND,
)
async def explain(body: ExplainRequest, service: CurrentService) -> Response:
    """Show which passages made the document's pseudo queries, and how each matches a question."""
    _check_query(body.query, service.settings)
    explanation = await asyncio.wrap_future(service.index.explain(body.query, body.id))
    if explanation is None:
        raise missing_document(body.id)
    return await respond(lambda: explain_answer(explanation), service.settings)


@router.post("/compare", summary="Find documents in three ways", response_model=CompareAnswer)
async def compare(body: CompareRequest, service: CurrentService) -> Response:
    """Find documents by pseudo queries, by words alone, and by one vector for each document."""
    _check_query(body.query, service.settings)
    _check_top(body.top, service.settings)
    job = SearchJob(
        (body.query,), body.top, {}, body.exact, body.mode, SearchSettings(), body.include_text
    )
    index = service.index
    (by_pseudo_queries,), (by_words,), by_one_vector = await asyncio.gather(
        asyncio.wrap_future(index.search(job)),
        asyncio.wrap_future(index.search(replace(job, mode="bm25"))),
        asyncio.wrap_future(index.search_one_vector(body.query, body.top)),
    )
    answers = {"pseudo_queries": by_pseudo_queries, "bm25": by_words, "one_vector": by_one_vector}
    return await respond(
        lambda: {way: answer_to_dict(answer, body.include_text) for way, answer in answers.items()},
        service.settings,
        SMALLER_SEARCH,
    )


@router.post(
    "/map",
    summary="Map a document's pseudo queries",
    response_model=MapAnswer,
    responses=NOT_FOUND,
)
async def map_of_document(body: MapRequest, service: CurrentService) -> Response:
    """Project a document's pseudo queries, and a question, on the plane that shows most of them."""
    if body.query is not None:
        _check_query(body.query, service.settings)
    document_map = await asyncio.wrap_future(service.index.map(body.id, body.query))
    if document_map is None:
        raise missing_document(body.id)
    return await respond(lambda: map_answer(document_map), service.settings)


def _queries(request: SearchRequest) -> tuple[str, ...]:
    return (request.query,) if isinstance(request.query, str) else tuple(request.query)


def _check_where(where: Metadata) -> None:
    compared = [
        value
        for condition in where.values()
        for value in (condition.values() if isinstance(condition, dict) else [condition])
    ]
    if len(compared) > MAX_CONDITIONS:
        raise Refused(422, f"the filter has more than {MAX_CONDITIONS} conditions.")
    values = sum(len(value) if isinstance(value, list) else 1 for value in compared)
    if values > MAX_VALUES:
        raise Refused(422, f"the filter has {values:,} values; at most {MAX_VALUES:,} are allowed.")
    compile_filter(where)


def _check_top(top: int, settings: ServiceSettings) -> None:
    if top > settings.top:
        raise Refused(422, f"top is {top}; at most {settings.top} is allowed.")


def _check_query(query: str, settings: ServiceSettings) -> None:
    if len(query) > settings.query_characters:
        raise Refused(
            422,
            f"a query has {len(query):,} characters; "
            f"at most {settings.query_characters:,} are allowed.",
        )
    check_query(query)
