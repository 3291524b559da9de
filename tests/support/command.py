"""Running a command inside the tests' own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Parse the output as strict JSON."""
        return json.loads(self.out, parse_constant=_no_constant)

    @property
    def lines(self) -> list[Any]:
        """Parse each line of the output."""
        return [json.loads(line, parse_constant=_no_constant) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def write(path: Path, *records: Any) -> Path:
    """Write records as JSON lines; text as it stands."""
    path.parent.mkdir(exist_ok=True)
    text = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("".join(f"{line}\n" for line in text))
    return path
