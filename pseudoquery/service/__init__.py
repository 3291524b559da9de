"""An index over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pseudoquery.service.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """Load the service, and with it FastAPI, only when it is asked for."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pseudoquery.service.app import create_app

    return create_app
