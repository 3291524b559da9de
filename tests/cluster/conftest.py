"""Where a contract is tried: an index folder, and a Milvus that the tests start themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from pseudoquery.index import Index
from pseudoquery.milvus.index import MilvusIndex
from tests.cluster.milvus_server import start_milvus

Make = Callable[..., Index]
"""Makes an empty index, with the options of `Index.create`."""


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Milvus that all tests share; each has a collection of its own.

    It is the one that MILVUS_ADDRESS names, so that the contract can be tried on any; or one that
    is started here.
    """
    if running := os.environ.get("MILVUS_ADDRESS"):
        yield running
        return
    server = start_milvus(tmp_path_factory.mktemp("milvus"))
    yield server.url
    server.stop()


@pytest.fixture
def address(milvus: str) -> str:
    """The address of a collection that is not there yet."""
    return f"{milvus}/{new_name()}"


def new_name() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture(
    scope="session", params=["folder", pytest.param("milvus", marks=pytest.mark.cluster)]
)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Make an index in the store that is being tried."""

    def made(**how: Any) -> Index:
        if request.param == "folder":
            return Index.create(tmp_path_factory.mktemp("contract") / "index", **how)
        return MilvusIndex.create(f"{request.getfixturevalue('milvus')}/{new_name()}", **how)

    return made
