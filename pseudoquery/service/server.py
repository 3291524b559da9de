"""The HTTP server in front of the application: uvicorn, with the settings that it needs here."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from pseudoquery.service.connection import Connection
from pseudoquery.service.connections import Connections, affordable_connections
from pseudoquery.service.dependencies import Service

SHUTDOWN_SECONDS = 60
"""How long accepted requests may take to finish after the service was told to stop."""
HEAD_BYTES = 64 << 10
"""The largest head of a request: its address, which may hold a long id, and its headers."""


def server_config(app: FastAPI) -> uvicorn.Config:
    """Choose the settings of the server for an application that `create_app` has made."""
    service: Service = app.state.service
    limit = affordable_connections(service.settings.connections)

    class ServedConnection(Connection):
        open_connections = Connections(limit, service.metrics)
        head_seconds = service.settings.head_seconds

    return uvicorn.Config(
        app,
        access_log=False,  # its lines would contain document ids
        log_config=None,
        server_header=False,
        proxy_headers=False,
        http=ServedConnection,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws="none",
        lifespan="on",
        backlog=max(16, limit // 2),  # asyncio accepts so many before it looks at the first
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
