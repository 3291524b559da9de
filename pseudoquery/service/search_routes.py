"""The addresses that search: search, explain, compare and map."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from pseudoquery.json_records import answer_to_dict
from pseudoquery.search.settings import SearchSettings, check_query
from pseudoquery.service.addresses import ReadingRoute
from pseudoquery.service.dependencies import (
    NOT_FOUND,
    CurrentService,
    missing_document,
    new_router,
)
from pseudoquery.service.errors import Refused
from pseudoquery.service.schemas import (
    CompareAnswer,
    CompareRequest,
    ExplainAnswer,
    ExplainRequest,
    MapAnswer,
    MapRequest,
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
        body = _search_request(await request.body())
        response = await search(body, request.app.state.service)
        await response(scope, receive, send)


def _search_request(content: bytes) -> SearchRequest:
    """Read a body, and refuse what FastAPI refuses at the other addresses."""
    try:
        return SearchRequest.model_validate(json.loads(content))
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from None
    except json.JSONDecodeError as error:
        raise Refused(422, f"the body is not valid JSON: {error.msg}.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON.") from None


async def search(body: SearchRequest, service: CurrentService) -> Response:
    """Find the documents that best answer one question, or each of several."""
    queries = [body.query] if isinstance(body.query, str) else body.query
    _check_search(queries, body, service.settings)
    settings = SearchSettings(
        recall=body.recall,
        fusion=body.fusion,
        weight=body.weight,
        fusion_depth=body.fusion_depth,
    )
    job = SearchJob(tuple(queries), body.top, body.where, body.exact, body.mode, settings)
    answers = await asyncio.wrap_future(service.index.search(job))
    # A SearchAnswer has the same JSON; to make one would only take time.
    content = {"answers": [answer_to_dict(answer, body.include_text) for answer in answers]}
    return Response(to_json(content), media_type="application/json")


router.add_api_route(
    "/search",
    search,
    methods=["POST"],
    summary="Find documents",
    response_model=SearchAnswer,
    route_class_override=SearchRoute,
)


@router.post("/explain", summary="Explain why a document matches", responses=NOT_FOUND)
async def explain(body: ExplainRequest, service: CurrentService) -> ExplainAnswer:
    """Show which passages made the document's pseudo queries, and how each matches a question."""
    _check_query(body.query, service.settings)
    explanation = await asyncio.wrap_future(service.index.explain(body.query, body.id))
    if explanation is None:
        raise missing_document(body.id)
    return explain_answer(explanation)


@router.post("/compare", summary="Find documents in three ways")
async def compare(body: CompareRequest, service: CurrentService) -> CompareAnswer:
    """Find documents by pseudo queries, by words alone, and by one vector for each document."""
    _check_query(body.query, service.settings)
    _check_top(body.top, service.settings)
    job = SearchJob((body.query,), body.top, {}, body.exact, body.mode, SearchSettings())
    index = service.index
    (by_pseudo_queries,), (by_words,), by_one_vector = await asyncio.gather(
        asyncio.wrap_future(index.search(job)),
        asyncio.wrap_future(index.search(replace(job, mode="bm25"))),
        asyncio.wrap_future(index.search_one_vector(body.query, body.top)),
    )
    answers = {"pseudo_queries": by_pseudo_queries, "bm25": by_words, "one_vector": by_one_vector}
    return CompareAnswer.model_validate(
        {way: answer_to_dict(answer, body.include_text) for way, answer in answers.items()}
    )


@router.post("/map", summary="Map a document's pseudo queries", responses=NOT_FOUND)
async def map_of_document(body: MapRequest, service: CurrentService) -> MapAnswer:
    """Project a document's pseudo queries, and a question, on the plane that shows most of them."""
    if body.query is not None:
        _check_query(body.query, service.settings)
    document_map = await asyncio.wrap_future(service.index.map(body.id, body.query))
    if document_map is None:
        raise missing_document(body.id)
    return map_answer(document_map)


def _check_search(queries: list[str], body: SearchRequest, settings: ServiceSettings) -> None:
    if len(queries) > settings.queries:
        raise Refused(422, f"{len(queries)} queries; at most {settings.queries} are allowed.")
    for query in queries:
        _check_query(query, settings)
    _check_top(body.top, settings)
    conditions = body.where.values()
    count = sum(len(condition) if isinstance(condition, dict) else 1 for condition in conditions)
    if count > MAX_CONDITIONS:
        raise Refused(422, f"the filter has more than {MAX_CONDITIONS} conditions.")
    compile_filter(body.where)


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
