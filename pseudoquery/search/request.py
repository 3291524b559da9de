"""What is asked of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pseudoquery.search.settings import Mode, SearchSettings, check_search
from pseudoquery.storage.filters import Where


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Queries, and how to answer them."""

    queries: Sequence[str]
    top: int
    where: Where | None
    exact: bool
    mode: Mode
    settings: SearchSettings


def check_request(
    queries: Sequence[str],
    top: int,
    where: Where | None,
    exact: bool,
    mode: Mode,
    settings: SearchSettings | None,
) -> RankRequest:
    """Collect what was asked, or refuse what can't be answered; one string is one query."""
    if isinstance(queries, str):
        queries = [queries]
    settings = settings or SearchSettings()
    check_search(queries, top, mode, settings)
    return RankRequest(queries, top, where, exact, mode, settings)
