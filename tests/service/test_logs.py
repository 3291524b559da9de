"""The log: JSON lines that hold nothing of a document or a query."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from pseudoquery.index import Index
from pseudoquery.service.logs import log, log_as_json, log_failure
from tests.support.serving import LINES, READ, lines, running


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a service logs; afterwards, logging is as it was."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    written = io.StringIO()
    log_as_json(written)
    yield written
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_no_line_holds_text(
    served: Index, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "xyzzy"
    with running(served, read_tokens=(READ,), write_tokens=(f"{secret}-write-token",)) as service:
        token = f"{secret}-write-token"

        def ask(method: str, path: str, body: Any = None, **how: Any) -> int:
            return service.ask(method, path, body, token=token, **how).status

        assert ask("PUT", f"/documents/{secret}", {"text": f"moon {secret}"}) == 200
        assert ask("PUT", f"/documents/{secret}", {"texts": secret}) == 422
        assert ask("POST", "/documents", lines({"id": "b", "text": secret}), kind=LINES) == 200
        assert ask("POST", "/documents", lines({"id": "b", "t": secret}), kind=LINES) == 422
        assert ask("POST", "/documents", lines(secret.encode()), kind=LINES) == 422
        assert ask("POST", "/search", {"query": secret, "where": {secret: secret}}) == 200
        assert ask("POST", "/search", {"query": secret, "where": {secret: [[secret]]}}) == 422
        assert ask("POST", "/explain", {"query": secret, "id": secret}) == 200
        assert ask("GET", f"/documents/{secret}?{secret}={secret}") == 200
        assert ask("GET", f"/{secret}", headers={secret: secret}) == 404
        assert ask("DELETE", f"/documents/{secret}") == 200

        def broken(*_: object) -> None:
            raise ValueError(secret)

        monkeypatch.setattr(Index, "get", broken)
        assert ask("GET", f"/documents/{secret}") == 500
    assert secret not in stream.getvalue()
    assert "Traceback" not in stream.getvalue()
    written = read(stream)
    requests = [line for line in written if line["event"] == "request"]
    assert len(requests) == 12
    first = requests[0]
    assert (first["method"], first["route"], first["status"]) == ("PUT", "/documents/{id}", 200)
    assert first["bytes_in"] > 0
    assert first["bytes_out"] > 0
    assert first["milliseconds"] > 0
    (failure,) = [line for line in written if line["event"] == "failure"]
    assert failure["error"] == "ValueError"
    assert failure["level"] == "error"
    assert failure["where"].startswith("test_logs.py:")


def test_why_an_index_can_not_be_used_is_in_the_log_alone(
    served: Index, stream: io.StringIO
) -> None:
    with running(served) as service:
        (served.folder / "index.sqlite").rename(served.folder / "away")
        assert service.ask("GET", "/documents/a").status == 503
    (failure,) = [line for line in read(stream) if line["event"] == "failure"]
    assert str(served.folder) in failure["reason"]
    assert failure["error"] == "IndexFolderError"


def test_everything_that_is_logged_is_json(stream: io.StringIO) -> None:
    log("request", status=200)
    try:
        raise KeyError("secret")
    except KeyError as error:
        log_failure("failure", error, route="/search")
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    logging.getLogger("uvicorn.error").info("Started\nserver")
    logging.getLogger("asyncio").warning("slow %s", "task")
    logging.getLogger("another").info("not of interest")
    warnings.warn("old", stacklevel=1)
    written = read(stream)
    assert [line["event"] for line in written][:5] == [
        "request",
        "failure",
        "Exception in ASGI application",
        "Started\nserver",
        "slow task",
    ]
    assert all(line["time"].endswith("+00:00") and line["level"] for line in written)
    assert [line.get("error") for line in written[:3]] == [None, "KeyError", "KeyError"]
    assert "secret" not in stream.getvalue()
