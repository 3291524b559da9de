"""The service's log: one JSON object a line, without document or query text."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

LOGGER = logging.getLogger("pseudoquery.service")


def log(event: str, **facts: Any) -> None:
    """Log one line; facts are numbers, names of routes and the like."""
    LOGGER.info(event, extra={"facts": facts})


def log_failure(event: str, error: BaseException, **facts: Any) -> None:
    """Log where an error happened, but not its message, which may quote a document."""
    LOGGER.error(event, extra={"facts": {**facts, **_place(error)}})


def log_as_json(stream: TextIO) -> None:
    """Let everything that this process logs be JSON lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    for name in ("pseudoquery", "uvicorn"):
        logging.getLogger(name).setLevel(logging.INFO)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1]:
            facts |= _place(record.exc_info[1])
        return json.dumps(facts)


def _place(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": " < ".join(reversed(where))}
