"""The report of a benchmark: times, beside floors that are measured in the same run.

A floor is the time to read all bytes that have to be read, at the measured bandwidth, or to do all
operations, at the measured rate, whichever is longer. Nothing can be faster, so the ratio to the
floor says how much there is to gain. What is compared takes turns, so that a busy machine is unfair
to all alike, and the median counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pseudoquery.bench.machine import describe_machine


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one job."""

    what: str
    """The name of the job."""
    seconds: float
    """The median of all repetitions."""
    floor: float
    """The least seconds that the job can take on this machine."""
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times the floor the job takes."""
        return self.seconds / self.floor


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and its target."""

    what: str
    value: float
    target: float
    at_most: bool = True
    unit: str = ""
    """The unit of the figure; a ratio has none."""

    @property
    def met(self) -> bool:
        """Whether the figure meets its target."""
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a benchmark."""

    benchmark: str
    data: Mapping[str, Any]
    rows: Sequence[Timing]
    checks: Sequence[Check] = ()
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, the derived figures included."""
        return {
            "benchmark": self.benchmark,
            "machine": dict(self.machine),
            "data": dict(self.data),
            "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows],
            "checks": [{**asdict(check), "met": check.met} for check in self.checks],
        }


def format_duration(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> format_duration(0.0025)
    '2.50 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds * 1e6:,.2f} µs"
