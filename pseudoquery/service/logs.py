"""The service's log: one JSON object a line, without the text of documents or questions."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

LOGGER = logging.getLogger("pseudoquery.service")


def log(event: str, **facts: Any) -> None:
    """Log one line. Facts are numbers, names of routes and the like."""
    LOGGER.info(event, extra={"facts": facts})


def log_failure(event: str, error: BaseException, **facts: Any) -> None:
    """Log where an error happened, but not its message, which may quote a document."""
    LOGGER.error(event, extra={"facts": {**facts, **_traced(error)}})


def log_as_json(stream: TextIO) -> None:
    """Write everything that this process logs as lines of JSON."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    for name in ("pseudoquery", "uvicorn"):
        logging.getLogger(name).setLevel(logging.INFO)


class _Formatter(JsonFormatter):
    def add_fields(
        self,
        log_data: dict[str, Any],
        record: logging.LogRecord,
        message_dict: dict[str, Any],  # noqa: ARG002
    ) -> None:
        """Choose the fields: a traceback, or what another library adds, may quote a document."""
        created = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = created.isoformat(timespec="milliseconds")
        log_data["level"] = record.levelname.lower()
        log_data["logger"] = record.name
        log_data["event"] = record.getMessage()
        log_data.update(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[1]:
            log_data.update(_traced(record.exc_info[1]))


def _traced(error: BaseException) -> dict[str, str]:
    """Name an error and the last three lines of code that it came through."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": " < ".join(reversed(where))}
