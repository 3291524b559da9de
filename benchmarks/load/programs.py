"""The two programs that are compared: the service, and the library called directly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Program:
    """A child process that speaks in lines of JSON."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
            )
        self._log = log

    def tell(self, value: Any) -> None:
        """Write a line to it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Read a line from it."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program ended at once:\n{self._log.read_text()[-2000:]}")
        return json.loads(line)

    def cpu(self) -> float:
        """Return the seconds of processor time that it has taken."""
        content = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = content.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal, and return how it ended."""
        self._process.send_signal(number)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()
        return code


def serve(folder: Path, log: Path) -> tuple[Program, int]:
    """Start `pseudoquery serve` on any free port of this machine alone; returns the port, too."""
    options = ["serve", str(folder.resolve()), "--port", "0", "--json"]
    service = Program([sys.executable, "-m", "pseudoquery.cli", *options], log)
    return service, int(service.hear()["url"].rpartition(":")[2])


def call_directly(folder: Path, questions: Sequence[str], log: Path) -> Program:
    """Start the program that uses the library."""
    module = "benchmarks.load.direct"
    program = Program([sys.executable, "-m", module, str(folder.resolve())], log)
    program.tell(list(questions))
    program.hear()
    return program
