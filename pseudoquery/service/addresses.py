"""The addresses of the service, derived from its router, so that every rule has one list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from pseudoquery.service.off_loop import BodyRoute

JSON = ("application/json",)
JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
OPENAPI = "/openapi.json"
UNKNOWN = "other"
"""The route of every path that the service does not know."""


class PublicRoute(APIRoute):
    """An address that needs no token: it says nothing about the documents."""


class ReadingRoute(BodyRoute):
    """An address that changes nothing, whatever the method."""


class UploadRoute(APIRoute):
    """An address that takes lines of JSON, and reads them as they arrive."""


@dataclass(frozen=True, slots=True)
class Address:
    """A method and a route of the service, and the rules for it."""

    method: str
    route: str
    """The path without ids, such as /documents/{id}: for rules, metrics and the log."""
    is_public: bool = False
    access: Literal["read", "write"] = "write"
    """What a token must allow."""
    media_types: tuple[str, ...] = ()
    """The kinds of body that it takes; none if it takes no body."""
    is_upload: bool = False


class Addresses:
    """All addresses of the service."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        known = [route for route in routes if isinstance(route, Route)]
        self._addresses = {
            (method, route.path_format): _address(method, route)
            for route in known
            for method in route.methods or ()
        }
        self.routes = frozenset(route.path_format for route in known)
        self._public = {address.route for address in self._addresses.values() if address.is_public}
        prefixes = {route.partition("{")[0]: route for route in self.routes if "{" in route}
        self._prefixes = tuple(prefixes.items())

    def find(self, method: str, path: str) -> Address:
        """Find the rules for a request; what the service does not know counts as a change."""
        route = self.route_of(path)
        return self._addresses.get((method, route)) or Address(
            method,
            route,
            is_public=route in self._public,
            access="read" if method == "GET" else "write",
        )

    def route_of(self, path: str) -> str:
        """Return the route of a path."""
        if path in self.routes:
            return path
        for prefix, route in self._prefixes:
            if path.startswith(prefix):
                return route
        return UNKNOWN


def _address(method: str, route: Route) -> Address:
    is_upload = isinstance(route, UploadRoute)
    takes_json = isinstance(route, APIRoute) and route.body_field is not None
    reads = method == "GET" or isinstance(route, ReadingRoute)
    return Address(
        method,
        route.path_format,
        is_public=isinstance(route, PublicRoute) or route.path == OPENAPI,
        access="read" if reads else "write",
        media_types=JSON_LINES if is_upload else JSON if takes_json else (),
        is_upload=is_upload,
    )
