"""The HTTP service: search, explain and change an index while it runs.

    uvicorn.run(create_app(Index.open("my-index")))

This file says what each address does; what protects them all is in service_guard.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from pseudoquery.index import Index
from pseudoquery.service.errors import refusal
from pseudoquery.service.guard import Guard
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.page_files import router as page_router
from pseudoquery.service.routes import SearchRoute, Service, router, search
from pseudoquery.service.schemas import (
    SearchAnswer,
)
from pseudoquery.service.served_index import ServedIndex
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.version import VERSION


def create_app(index: Index, settings: ServiceSettings | None = None) -> FastAPI:
    """Make the ASGI application that serves an index. Without tokens it answers only to this
    machine.
    """
    settings = settings or ServiceSettings()
    watch = Metrics()
    served = ServedIndex(index, watch)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(served.warm_up)
        yield
        await asyncio.to_thread(served.close)

    app = FastAPI(
        title="pseudoquery",
        summary="Search documents by the questions they answer.",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # an id may end with a slash
    )
    app.state.service = Service(served, settings, watch)
    app.router.routes.extend(router.routes)  # an included router matches each request twice
    app.include_router(page_router)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_middleware(Guard, settings=settings, watch=watch)
    return app


async def _refuse(_: Request, error: Exception) -> Response:
    refused = refusal(error)
    headers = dict(refused.headers or {})
    return Response(refused.content(), refused.status_code, headers, "application/json")


router.add_api_route(
    "/search",
    search,
    methods=["POST"],
    summary="Find documents",
    response_model=SearchAnswer,
    route_class_override=SearchRoute,
)
