"""What the handlers of all addresses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Path, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.convertors import Convertor, register_url_convertor

from pseudoquery.service.errors import Refused
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.off_loop import BodyRoute
from pseudoquery.service.schemas import ErrorAnswer
from pseudoquery.service.served_index import ServedIndex
from pseudoquery.service.settings import ServiceSettings

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The body can't be read.",
        401: "The request needs a token that the service knows.",
        403: "The token does not allow this request.",
        408: "The request arrived too slowly.",
        413: "The body, a document or the answer is too large.",
        415: "The body has the wrong media type.",
        421: "Without tokens, the service answers only to localhost.",
        422: "Something in the request can't be used; the message says what.",
        429: "Too many requests at once; try again after Retry-After seconds.",
        500: "An error inside the service.",
        503: "Another process is writing to the index, or the index can't be used.",
        504: "The request took too long.",
    }.items()
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorAnswer, "description": "The index has no such document."}
}


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it is. Starlette's own `path` ends at a line break."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _AnyText())


@dataclass(frozen=True, slots=True)
class Service:
    """What the handlers work with."""

    index: ServedIndex
    settings: ServiceSettings
    metrics: Metrics


def new_router(route_class: type[APIRoute] = BodyRoute) -> APIRouter:
    """Make a router whose addresses describe their errors and their token.

    The guard checks tokens; the dependency here only describes them.
    """
    token = Depends(HTTPBearer(auto_error=False, description="A token."))
    return APIRouter(responses=FAILURES, dependencies=[token], route_class=route_class)


def missing_document(id: str) -> Refused:  # noqa: A002
    """Say that the index has no such document."""
    return Refused(404, f"there is no document with the id {id!r}.")


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _document_id(
    request: Request,
    id: Annotated[  # noqa: A002, ARG001
        str,
        Path(description="The id, percent-encoded: a slash is %2F.", examples=["bees"]),
    ],
) -> str:
    """Decode the id strictly: the framework would turn what is not UTF-8 into another id."""
    _, _, encoded = request.scope["raw_path"].partition(b"/documents/")
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise Refused(422, "the id in the address is not valid UTF-8.") from None


CurrentService = Annotated[Service, Depends(_service)]
DocumentId = Annotated[str, Depends(_document_id)]
