"""Connections to Milvus, and its errors in one sentence. Only this module imports pymilvus."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pseudoquery.errors import IndexFolderError, ServiceError

TOKEN = "MILVUS_TOKEN"
TIMEOUT = 60.0
"""Seconds that Milvus may take for one request."""
SILENT = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": False}
"""No pings, because every call has a timeout, and a gRPC server closes connections that ping as
often as pymilvus does."""
NO_CONNECTION, NOT_LOADED = 2, 101
"""Error codes of pymilvus and of the server; gRPC has others."""


@contextmanager
def milvus_errors(address: str) -> Iterator[None]:
    """Say in one sentence what Milvus could not do."""
    milvus = pymilvus()
    import grpc

    try:
        yield
    except (milvus.MilvusException, grpc.RpcError) as error:
        code = error.code() if callable(error.code) else error.code
        unreachable = (
            NO_CONNECTION,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        if code in unreachable:
            raise ServiceError(
                f"no Milvus answers at {address}; start it, or correct the address."
            ) from error
        if code == NOT_LOADED:
            raise ServiceError(
                f"Milvus does not hold {address} in memory, as after a restart; open it again."
            ) from error
        text = " ".join(str(getattr(error, "message", error)).split()).rstrip(".")
        raise ServiceError(f"Milvus at {address} refuses: {text}.") from error


def pymilvus() -> Any:
    """Import pymilvus, or say how to install it."""
    try:
        import pymilvus
    except ImportError as error:
        raise ServiceError(
            "pymilvus is not installed; run: pip install 'pseudoquery[milvus]'"
        ) from error
    # It would print a traceback for each error that is raised anyway.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    return pymilvus


def connect(server: str, token: str) -> Any:
    """Connect to a server; the token comes from the environment if none is given."""
    token = token or os.environ.get(TOKEN, "")
    return pymilvus().MilvusClient(server, token=token, timeout=TIMEOUT, grpc_options=SILENT)


def split_address(address: str) -> tuple[str, str]:
    """Split an address into the server's address and the collection's name."""
    server, _, name = address.rpartition("/")
    scheme, _, host = server.partition("://")
    if "@" in host:  # a password would be shown wherever the address is
        raise ServiceError(
            "an address holds no user and no password; give them as a token, USER:PASSWORD, in the "
            f"environment variable {TOKEN}."
        )
    if scheme not in ("http", "https") or not host or not name.isidentifier():
        raise ServiceError(
            f"{address!r} is not the address of a collection; write it as "
            "http://HOST:PORT/NAME, with a name of letters, digits and underscores."
        )
    return server, name


def not_our_collection(address: str) -> IndexFolderError:
    """Say that pseudoquery has not made a collection, or not finished it."""
    return IndexFolderError(
        f"{address} is a collection that was not made by pseudoquery, or not to the end; "
        "choose another name, or drop it in Milvus."
    )
