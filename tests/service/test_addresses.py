"""The rules for each address follow from the router."""

from __future__ import annotations

import pytest
from fastapi import FastAPI

from pseudoquery.index import Index
from pseudoquery.service.addresses import JSON, JSON_LINES, OPENAPI, Addresses
from pseudoquery.service.app import create_app


@pytest.fixture
def app(served: Index) -> FastAPI:
    return create_app(served)


@pytest.fixture
def addresses(app: FastAPI) -> Addresses:
    return Addresses(app.routes)


def test_every_route_of_the_router_is_known(app: FastAPI, addresses: Addresses) -> None:
    described = app.openapi()["paths"]
    assert addresses.routes == {*described, OPENAPI, "/", "/page/{name}"}
    for path, operations in described.items():
        for method, operation in operations.items():
            address = addresses.find(method.upper(), path.replace("{id}", "a"))
            assert address.route == path
            kinds = operation.get("requestBody", {}).get("content", {})
            assert set(kinds) <= set(address.media_types)
            assert bool(kinds) == bool(address.media_types)


def test_only_these_need_no_token(addresses: Addresses) -> None:
    public = {route for route in addresses.routes if addresses.find("GET", route).is_public}
    assert public == {"/healthz", "/readyz", OPENAPI, "/", "/page/{name}"}
    assert addresses.find("BREW", "/healthz").is_public
    assert not addresses.find("GET", "/nowhere").is_public


@pytest.mark.parametrize("path", ["/search", "/explain", "/compare", "/map"])
def test_questions_read(addresses: Addresses, path: str) -> None:
    address = addresses.find("POST", path)
    assert (address.access, address.media_types) == ("read", JSON)
    assert addresses.find("PUT", path).access == "write"


def test_only_an_upload_is_read_as_it_comes(addresses: Addresses) -> None:
    upload = addresses.find("POST", "/documents")
    assert (upload.is_upload, upload.access, upload.media_types) == (True, "write", JSON_LINES)
    assert not addresses.find("PUT", "/documents/a").is_upload


def test_anything_unknown_counts_as_a_change(addresses: Addresses) -> None:
    assert addresses.find("GET", "/secret").access == "read"
    for method in ("HEAD", "PATCH", "POST", "PUT", "DELETE", "BREW"):
        assert addresses.find(method, "/documents/a").access == "write"
        assert addresses.find(method, "/secret").access == "write"


def test_routes_hold_no_ids(addresses: Addresses) -> None:
    assert addresses.route_of("/documents/secret/id") == "/documents/{id}"
    assert addresses.route_of("/page/secret") == "/page/{name}"
    assert addresses.route_of("/secret") == "other"
    assert addresses.route_of("/documentssecret") == "other"
