"""The addresses for operators: facts, health and metrics."""

from __future__ import annotations

import asyncio

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST

from pseudoquery.errors import PseudoqueryError
from pseudoquery.service.addresses import PublicRoute
from pseudoquery.service.dependencies import CurrentService, new_router
from pseudoquery.service.errors import RETRY, Refused, refusal
from pseudoquery.service.schemas import InfoAnswer, StateAnswer
from pseudoquery.version import VERSION

router = new_router()
public_router = new_router(PublicRoute)


@router.get("/info", summary="Read facts about the index, and the service's limits")
async def info(service: CurrentService) -> InfoAnswer:
    """Return the number of documents, the representation, the limits, and the like."""
    facts = await asyncio.wrap_future(service.index.facts())
    return InfoAnswer(version=VERSION, index=facts, limits=service.settings.limits())


@router.get(
    "/metrics",
    summary="Read metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: CurrentService) -> Response:
    """Return all metrics in Prometheus's text format."""
    documents = await asyncio.wrap_future(service.index.count())
    return Response(service.metrics.as_text(documents), media_type=CONTENT_TYPE_LATEST)


@public_router.get("/healthz", summary="Is the service alive?")
async def healthz() -> StateAnswer:
    """Answer as long as the process runs."""
    return StateAnswer(status="ok")


@public_router.get("/readyz", summary="Can the service answer questions?")
async def readyz(service: CurrentService) -> StateAnswer:
    """Answer if the service can read the index."""
    try:
        await asyncio.wrap_future(service.index.count())
    except PseudoqueryError as error:
        raise Refused(503, refusal(error).message, headers=RETRY) from error
    return StateAnswer(status="ok")
