"""The command that serves an index over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import sys
from types import FrameType
from typing import Any

import click

from pseudoquery.building.location import Location, open_index
from pseudoquery.cli.options import json_option, location_argument
from pseudoquery.errors import PseudoqueryError

positive_integer = click.IntRange(min=1)


@click.command()
@location_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen on; 0 picks a free port.",
)
@click.option(
    "--read-token",
    "read_tokens",
    multiple=True,
    envvar="PSEUDOQUERY_READ_TOKEN",
    help="A token for clients that may search and read. Other users of this machine can see "
    "options: set PSEUDOQUERY_READ_TOKEN instead. It may hold several tokens, separated by spaces.",
)
@click.option(
    "--write-token",
    "write_tokens",
    multiple=True,
    envvar="PSEUDOQUERY_WRITE_TOKEN",
    help="A token for clients that may also change documents; PSEUDOQUERY_WRITE_TOKEN is safer.",
)
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="A web origin whose pages may use the service, such as https://example.org. Repeat the "
    "option for several origins.",
)
@click.option(
    "--max-body",
    "body_bytes",
    type=positive_integer,
    default=4 << 20,
    show_default=True,
    help="The most bytes in a request, or in a line of a bulk request.",
)
@click.option(
    "--max-bulk",
    "bulk_bytes",
    type=positive_integer,
    default=1 << 30,
    show_default=True,
    help="The most bytes in a bulk request.",
)
@click.option(
    "--max-document",
    "document_characters",
    type=positive_integer,
    default=1_000_000,
    show_default=True,
    help="The most characters in a document.",
)
@click.option(
    "--max-metadata",
    "metadata_bytes",
    type=positive_integer,
    default=256 << 10,
    show_default=True,
    help="The most bytes in a document's metadata, as JSON.",
)
@click.option(
    "--max-query",
    "query_characters",
    type=positive_integer,
    default=4000,
    show_default=True,
    help="The most characters in a query.",
)
@click.option(
    "--max-queries",
    "queries",
    type=positive_integer,
    default=64,
    show_default=True,
    help="The most queries in a request.",
)
@click.option(
    "--max-top",
    "top",
    type=positive_integer,
    default=100,
    show_default=True,
    help="The most documents that a query may ask for.",
)
@click.option(
    "--max-response",
    "response_bytes",
    type=positive_integer,
    default=64 << 20,
    show_default=True,
    help="The most bytes in an answer.",
)
@click.option(
    "--max-concurrent",
    "concurrency",
    type=positive_integer,
    default=256,
    show_default=True,
    help="The most requests at a time; the service tells further clients to try again.",
)
@click.option(
    "--max-connections",
    "connections",
    type=positive_integer,
    default=1000,
    show_default=True,
    help="The most open connections; if more come, the one that has waited longest is closed.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="The most seconds that a request may take.",
)
@click.option(
    "--head-timeout",
    "head_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="The most seconds that a client may take to send the head of a request.",
)
@json_option
def serve(location: Location, host: str, port: int, as_json: bool, **settings: Any) -> None:
    """Serve the index in FOLDER over HTTP.

    Clients search and change the index while the service runs. Only this machine can reach the
    service unless you set --host, which needs a token. The service logs JSON lines to standard
    error. When it is told to stop, it first finishes the requests that it has accepted.
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
    from pseudoquery.service.server import server_config
    from pseudoquery.service.settings import ServiceSettings, check_host

    service_settings = ServiceSettings(**settings)
    check_host(host, service_settings)
    index = open_index(location)
    # If the model or a vector file is missing, the user learns it now.
    run_in_thread(lambda: index.search("ready", 1))
    app = create_app(index, service_settings)
    with _listen(host, port) as listener:
        log_as_json(sys.stderr)
        url = _make_url(host, listener.getsockname()[1])

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                # Whoever reads this line can send requests, and stop the service, at once.
                click.echo(json.dumps({"url": url}) if as_json else f"Serving {location} on {url}")

        signal.signal(signal.SIGTERM, _exit)
        Server(server_config(app)).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not an address"
        raise PseudoqueryError(
            f"can't listen on port {port} of {host} ({reason}); choose another --port or --host."
        ) from error


def _make_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _exit(_number: int, _frame: FrameType | None) -> None:
    """Exit with 0: when the server passes the signal on, it has finished all requests."""
    sys.exit(0)
