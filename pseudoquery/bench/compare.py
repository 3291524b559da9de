"""Whether the code has become slower: the ratios of one run beside those of an earlier one.

Times are not compared, as they depend on the machine as much as on the code. Only ratios are: of a
time to its floor, or to the time of a peer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pseudoquery.errors import QueryError

if TYPE_CHECKING:
    from pseudoquery.bench.report import Report

ALLOWED = 1.5
"""How much worse a ratio may be. Runs of the same code have differed by 1.4."""
MEASURED = ("disk_gb_per_s", "repeats")
"""The parts of a report's data that may differ from run to run."""


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio that both runs have measured."""

    what: str
    before: float
    now: float
    factor: float
    """How many times worse it is now; below one if it is better."""

    @property
    def worse(self) -> bool:
        """Whether it is worse by more than runs differ."""
        return self.factor > ALLOWED


def read_report(path: Path) -> dict[str, Any]:
    """Read what `bench --json` wrote."""
    try:
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        values = [value for _, (value, _) in _ratios(report)]
        if values and min(values) > 0 and {"benchmark", "data"} <= report.keys():
            return report
    except OSError as error:
        raise QueryError(f"{path} can't be read: {error.strerror}.") from error
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise QueryError(
        f"{path} is not a report; write one with `pseudoquery bench ... --json > FILE`."
    )


def compare_reports(report: Report, before: Mapping[str, Any]) -> list[Change]:
    """Compare a report with an earlier one of the same data; return the worst change first."""
    now = report.as_json()
    for name in ("benchmark", "data"):
        if _without_measured(now[name]) != _without_measured(before[name]):
            raise QueryError(
                f"the earlier report has the {name} {before[name]}, and this run has {now[name]}; "
                "compare runs of one command with the same options."
            )
    known = dict(_ratios(before))
    changes = []
    for what, (value, at_most) in _ratios(now):
        if what in known:
            earlier, _ = known[what]
            factor = value / earlier if at_most else earlier / value
            changes.append(Change(what, earlier, value, factor))
    return sorted(changes, key=lambda change: -change.factor)


def _without_measured(facts: Any) -> Any:
    if not isinstance(facts, Mapping):
        return facts
    return {name: value for name, value in facts.items() if name not in MEASURED}


def _ratios(report: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, bool]]]:
    """Yield the name of each ratio, with its value and whether less is better."""
    for row in report["rows"]:
        yield f"{row['what']} / its floor", (float(row["ratio"]), True)
    for check in report["checks"]:
        if not check.get("unit"):
            yield check["what"], (float(check["value"]), bool(check["at_most"]))
