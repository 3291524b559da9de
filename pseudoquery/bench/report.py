"""How fast something is, beside what the machine could do at best, measured in the same run.

A floor is the time that the bytes which have to be read take at the measured bandwidth, or the
operations at the measured rate, whichever is longer. Nothing can be faster than that; the ratio to
it says how much there is to gain. What is compared takes turns, so that a busy machine is unfair to
all alike, and the median counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pseudoquery.bench.machine import describe_machine


@dataclass(frozen=True, slots=True)
class Timing:
    """One thing that was timed."""

    what: str
    seconds: float
    """The median of all repetitions."""
    floor: float
    """Seconds that this takes at least on this machine."""
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times the floor it takes."""
        return self.seconds / self.floor


@dataclass(frozen=True, slots=True)
class Check:
    """A figure, and what it should be."""

    what: str
    value: float
    target: float
    at_most: bool = True
    unit: str = ""
    """Without one, it is a ratio."""

    @property
    def met(self) -> bool:
        """Whether the figure is what it should be."""
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found."""

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
    """Write a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds * 1e6:,.2f} µs"
