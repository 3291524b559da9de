"""The HTTP service: search, explain and change an index while it runs.

Every request passes three layers before it reaches a handler: the recorder (metrics, log, security
headers), CORS (other web pages), and the guard (hosts, tokens, limits, errors).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pseudoquery.index import Index
from pseudoquery.service import document_routes, page_files, search_routes, status_routes
from pseudoquery.service.addresses import OPENAPI, Addresses
from pseudoquery.service.cors import Cors
from pseudoquery.service.dependencies import Service
from pseudoquery.service.errors import refusal
from pseudoquery.service.guard import Guard
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.recorder import Recorder
from pseudoquery.service.served_index import ServedIndex
from pseudoquery.service.settings import ServiceSettings
from pseudoquery.version import VERSION

ROUTERS = (
    search_routes.router,
    document_routes.router,
    status_routes.router,
    status_routes.public_router,
    page_files.router,
)


def create_app(index: Index, settings: ServiceSettings | None = None) -> FastAPI:
    """Make the ASGI application that serves an index.

    Args:
        index: The index. While the application runs, all changes should go through it.
        settings: Who may use the service, and how much. By default there are no tokens, and the
            service answers only to this machine.

    Returns:
        The application, for uvicorn or another ASGI server.

    Examples:
        >>> uvicorn.run(create_app(Index.open("my-index")))  # doctest: +SKIP
    """
    settings = settings or ServiceSettings()
    metrics = Metrics()
    served = ServedIndex(index, metrics, settings.response_bytes)

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
        openapi_url=OPENAPI,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # an id may end with a slash
    )
    app.state.service = Service(served, settings, metrics)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # an included router matches each request twice
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse)
    addresses = Addresses(app.routes)
    # What is added last comes first.
    app.add_middleware(Guard, addresses=addresses, settings=settings, metrics=metrics)
    app.add_middleware(Cors, origins=settings.cors_origins)
    app.add_middleware(Recorder, addresses=addresses, metrics=metrics)
    return app


async def _refuse(_: Request, error: Exception) -> Response:
    return refusal(error).response()
