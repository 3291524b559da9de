"""Every error of the service as one envelope: {"error": {"code": ..., "message": ...}}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pseudoquery.errors import (
    CorpusError,
    IndexLockedError,
    PseudoqueryError,
    QueryError,
)
from pseudoquery.service.batcher import ClosedError

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "invalid",
    429: "overloaded",
    431: "too_large",
    500: "internal",
    503: "unavailable",
    504: "timeout",
}
RETRY = {"retry-after": "1"}
LONGEST_MESSAGE = 2000
SMALLER_SEARCH = "lower top, send fewer queries, or set include_text to false"
HIGHER_LIMIT = "whoever runs the service can raise --max-response"
"""What to do if an answer is too large to be sent."""


class Refused(HTTPException):
    """The service refuses a request. FastAPI passes on no other kind of error while it reads a
    body.
    """

    def __init__(
        self, status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        # A message may quote the request, which may be long.
        self.message = message if len(message) <= LONGEST_MESSAGE else _shorten(message)
        self.code = code or CODES.get(status, "error")

    @property
    def content(self) -> bytes:
        """The envelope."""
        error = {"code": self.code, "message": self.message}
        # json.dumps writes ASCII alone: a message may quote text that is not valid Unicode.
        return json.dumps({"error": error}).encode()

    def response(self) -> Response:
        """Write the envelope as the application's response."""
        headers = dict(self.headers or {})
        return Response(self.content, self.status_code, headers, "application/json")


def unknown_address() -> Refused:
    """Say that nothing is at an address. A missing document has another code."""
    return Refused(404, "there is nothing at this address.", "unknown_address")


def too_large_answer(limit: int, remedy: str) -> Refused:
    """Say that an answer is larger than the service sends, and what to do."""
    return Refused(413, f"the answer is larger than {limit:,} bytes, which is the limit; {remedy}.")


def refusal(error: Exception) -> Refused:
    """Word an error for a client, who must learn nothing about this machine."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, HTTPException):
        return _of_framework(error)
    if isinstance(error, RequestValidationError):
        return Refused(422, _invalid(error.errors()[0]))
    if isinstance(error, QueryError | CorpusError):
        return Refused(422, str(error))
    if isinstance(error, ClosedError):
        return Refused(503, "the service is shutting down.", headers=RETRY)
    if isinstance(error, IndexLockedError):
        return Refused(
            503,
            "another process is writing to the index, so nothing was changed; try again later.",
            "locked",
            RETRY,
        )
    if isinstance(error, PseudoqueryError):
        return Refused(503, "the index can't be used now; the service's log says why.")
    return Refused(500, "an error inside the service; its log says where.")


def _shorten(message: str) -> str:
    """Keep the beginning, which says what is wrong, and the end, which says what was stored."""
    half = LONGEST_MESSAGE // 2
    return f"{message[:half]} ... {message[-half:]}"


def _of_framework(error: HTTPException) -> Refused:
    """Reword an error of the framework."""
    if error.status_code == 404:
        return unknown_address()
    messages = {
        400: "the body is not valid JSON.",
        405: "this address does not take this method.",
    }
    message = messages.get(error.status_code, str(error.detail))
    return Refused(error.status_code, message, headers=error.headers)


def _invalid(problem: Mapping[str, Any]) -> str:
    """Word an error of the validation, without quoting the request."""
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem['ctx']['error']}."
    field = "body" if len(problem["loc"]) < 2 else problem["loc"][1]
    return f"{field}: {str(problem['msg']).rstrip('.')}."
