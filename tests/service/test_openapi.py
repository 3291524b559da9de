"""Requests made up from the service's own description: none makes it fail, or answer otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from pseudoquery.index import Index
from tests.support.serving import LINES, running

EXAMPLES = 25
"""For each address, of requests that fit the description, and as many of ones that do not."""
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer(LINES)
def as_lines(_: Any, value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b"{}"


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=str)
def test_nothing_made_up_is_an_error_of_the_service(
    mode: schemathesis.GenerationMode, served: Index
) -> None:
    seen: Counter[tuple[str, int]] = Counter()

    def check(case: Any) -> None:
        response = case.call()
        seen[f"{case.method} {case.path}", response.status_code] += 1
        case.validate_response(response, checks=CHECKS)
        assert response.headers["content-security-policy"]
        if response.status_code >= 400:
            assert set(response.json()) == {"error"}
            assert set(response.json()["error"]) == {"code", "message"}

    limited = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    with running(served) as service:
        schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            if mode is schemathesis.GenerationMode.NEGATIVE and operation.method == "get":
                continue  # there is nothing to get wrong
            limited(given(case=operation.as_strategy(generation_mode=mode))(check))()
        assert service.ask("GET", "/readyz").status == 200
    assert len({address for address, _ in seen}) >= 5
    assert {200, 422} <= {status for _, status in seen}
