"""Work that could hold up the event loop, and with it every other client, runs in a thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import to_json

from pseudoquery.service.errors import HIGHER_LIMIT, Refused, too_large_answer
from pseudoquery.service.settings import ServiceSettings

Value = TypeVar("Value")
SMALL = 64 << 10
"""Bytes or characters that are dealt with at once: a thread would take longer."""
MAX_FIELDS = 100
"""How many fields a body may have: each unknown one would become an error of its own."""


async def off_loop(work: Callable[[], Value], size: int) -> Value:
    """Do some work of about this size, in a thread if it is not small."""
    return work() if size <= SMALL else await asyncio.to_thread(work)


def parse_body(content: bytes) -> Any:
    """Parse a body, and refuse one that is not meant for the service."""
    body = json.loads(content)
    if isinstance(body, dict) and len(body) > MAX_FIELDS:
        raise Refused(422, f"the body has {len(body):,} fields, which is far too many.")
    return body


async def respond(
    write: Callable[[], Any], settings: ServiceSettings, remedy: str = HIGHER_LIMIT
) -> Response:
    """Answer with what `write` returns, as JSON. It runs in a thread."""

    def write_json() -> bytes:
        content = to_json(write())
        if len(content) > settings.response_bytes:
            raise too_large_answer(settings.response_bytes, remedy)
        return content

    return json_response(await asyncio.to_thread(write_json))


def json_response(content: bytes) -> Response:
    """Answer with JSON that is already written."""
    return Response(content, media_type="application/json")


class BodyRoute(APIRoute):
    """An address whose body, if it is large, is parsed in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give FastAPI another kind of request."""
        handle = super().get_route_handler()

        async def handle_request(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_request


class _Request(Request):
    async def json(self) -> Any:
        content = await self.body()
        return await off_loop(lambda: parse_body(content), len(content))
