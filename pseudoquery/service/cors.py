"""Cross-origin requests: which other web pages may use the service."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pseudoquery.service.errors import Refused


class Cors(CORSMiddleware):
    """Starlette's middleware, with refusals in the form of the service's other errors."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=("Authorization", "Content-Type"),
            expose_headers=("Retry-After",),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a browser that asks whether a page of another origin may use the service."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        return Refused(403, "pages of this origin may not use the service.").response()

    async def simple_response(
        self, scope: Scope, receive: Receive, send: Send, request_headers: Headers
    ) -> None:
        """Pass a request on; without allowed origins, the response does not depend on them."""
        if self.allow_origins:
            await super().simple_response(scope, receive, send, request_headers)
        else:
            await self.app(scope, receive, send)
