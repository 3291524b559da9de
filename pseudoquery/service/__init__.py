"""The HTTP service: `create_app` makes the application that serves an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pseudoquery.service.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """Load FastAPI only when `create_app` is used."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pseudoquery.service.app import create_app

    return create_app
