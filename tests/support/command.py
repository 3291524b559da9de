"""Run a command inside the process of the tests, and check what it printed."""

from __future__ import annotations

import json
import re
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
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def check_refused(ran: Ran, *words: str) -> None:
    """Check that bad input got one sentence on stderr that says what to do, and exit code 2."""
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert "bug" not in ran.err
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1
    assert re.search(r"[.)]\n$|: (pip|openssl) [^\n]+\n$", ran.err)
    assert ".." not in ran.err.replace("...", "")
    for word in words:
        assert word in ran.err
