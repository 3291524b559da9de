"""Services and browsers for the tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from tests.support.browser import Visit, chromium, visiting
from tests.support.serving import Running, running


@pytest.fixture
def service(served: Index) -> Iterator[Running]:
    """A service with an index of its own."""
    with running(served) as started:
        yield started


@pytest.fixture(scope="module")
def shared(template: Path, tiny_model: MultiVectorEncoder) -> Iterator[Running]:
    """A service whose index no test may change."""
    with running(Index.open(template, model=tiny_model)) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Browser, shared: Running) -> Iterator[Visit]:
    """The page of the shared service; every file of it must load."""
    with visiting(browser, shared.url) as started:
        yield started
        assert started.failed_loads == []
