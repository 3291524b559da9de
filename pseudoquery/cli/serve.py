"""The part of the command that serves an index over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import sys
from types import FrameType
from typing import Any

import click

from pseudoquery.building.location import Location, open_index
from pseudoquery.cli.options import as_json, folder_argument
from pseudoquery.errors import PseudoqueryError

SHUTDOWN_SECONDS = 60
"""How long requests that were accepted may take to finish, once the service is told to stop."""
_count = click.IntRange(min=1)


@click.command()
@folder_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen on; 0 for any that is free.",
)
@click.option(
    "--read-token",
    "read_tokens",
    multiple=True,
    envvar="PSEUDOQUERY_READ_TOKEN",
    help="A token that may search and read. Other users of this machine can see options, so rather "
    "set PSEUDOQUERY_READ_TOKEN; it may hold several, with spaces between.",
)
@click.option(
    "--write-token",
    "write_tokens",
    multiple=True,
    envvar="PSEUDOQUERY_WRITE_TOKEN",
    help="A token that may also change documents; or set PSEUDOQUERY_WRITE_TOKEN.",
)
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="A web origin whose pages may use the service, such as https://example.org.",
)
@click.option(
    "--max-body",
    "body_bytes",
    type=_count,
    default=4 << 20,
    show_default=True,
    help="Bytes in a request, and in a line of a bulk request.",
)
@click.option(
    "--max-bulk",
    "bulk_bytes",
    type=_count,
    default=1 << 30,
    show_default=True,
    help="Bytes in a bulk request.",
)
@click.option(
    "--max-document",
    "document_characters",
    type=_count,
    default=1_000_000,
    show_default=True,
    help="Characters in a document.",
)
@click.option(
    "--max-query",
    "query_characters",
    type=_count,
    default=4000,
    show_default=True,
    help="Characters in a query.",
)
@click.option(
    "--max-queries",
    "queries",
    type=_count,
    default=64,
    show_default=True,
    help="Queries in a request.",
)
@click.option(
    "--max-top",
    "top",
    type=_count,
    default=100,
    show_default=True,
    help="Documents per query.",
)
@click.option(
    "--max-concurrent",
    "concurrency",
    type=_count,
    default=256,
    show_default=True,
    help="Requests in progress; more are told to come back.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that a request may take.",
)
@as_json
def serve(folder: Location, host: str, port: int, as_json: bool, **settings: Any) -> None:
    """Serve the index in FOLDER over HTTP: search it, and change it, while it runs.

    Only this machine can reach it unless --host says otherwise, which takes a token. It logs JSON
    lines to standard error, and finishes what it has accepted when it is told to stop.
    """
    try:
        import uvicorn

        from pseudoquery.service.app import create_app
    except ImportError as error:
        raise PseudoqueryError(
            "the service needs more packages; run: pip install 'pseudoquery[serve]'"
        ) from error
    from pseudoquery.service.logs import log_as_json
    from pseudoquery.service.served_index import run_in_thread
    from pseudoquery.service.settings import ServiceSettings, check_host

    allowed = ServiceSettings(**settings)
    check_host(host, allowed)
    index = open_index(folder)
    # A model or a vector file that is missing is told now.
    run_in_thread(lambda: index.search("ready", 1))
    app = create_app(index, allowed)
    with _listen(host, port) as listening:
        log_as_json(sys.stderr)
        config = uvicorn.Config(
            app,
            access_log=False,  # its lines would hold ids
            log_config=None,
            server_header=False,
            proxy_headers=False,
            # httptools, if it is there, answers methods that it does not know by itself.
            http="h11",
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        url = _url(host, listening.getsockname()[1])

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                # Whoever reads this may ask, and stop it, at once.
                click.echo(json.dumps({"url": url}) if as_json else f"Serving {folder} on {url}")

        signal.signal(signal.SIGTERM, _end)
        Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no address"
        raise PseudoqueryError(
            f"can't listen on port {port} of {host} ({reason}); choose another with --port."
        ) from error


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _end(_number: int, _frame: FrameType | None) -> None:
    """End well: the server has finished everything when it hands the signal on."""
    sys.exit(0)
