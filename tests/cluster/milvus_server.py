"""A real Milvus on loopback, started for the tests, in a process of its own.

`MilvusLite` is the small one, which is installed with the tests; `MilvusStandalone` the real server
2.3.5, from an environment of its own (`make .venv-milvus/server.stamp`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

LOOPBACK = "127.0.0.1"
INSIDE = Path(__file__).with_name("milvus_inside.py")
MILVUS_LITE = Path(sys.executable).with_name("milvus-lite")
STANDALONE = Path(__file__).parents[2] / ".venv-milvus" / "bin" / "python"
ALONE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
"""The standalone server listens to everyone, so it gets a network of its own; and processes of its
own, so that all of them end with the first."""
QUICK = (
    "proxy.timeTickInterval=20",  # a strongly consistent read waits for the next tick
    "queryCoord.checkInterval=50",
    "queryCoord.distPullInterval=50",
)
"""Milliseconds; ten times as often as usual, so that the tests wait less."""


class MilvusLite:
    """A server with a folder of its own, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server((LOOPBACK, 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        options = ["--data-dir", str(self.folder / "data"), "--host", LOOPBACK]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [MILVUS_LITE, "server", *options, "--port", str(self.port)], stdout=log, stderr=log
            )
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex((LOOPBACK, self.port)) == 0:
                    return
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        raise AssertionError("milvus-lite does not listen after a minute")

    def kill(self) -> None:
        """Kill it, as a power cut would: it can put nothing in order."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(timeout=60)


class MilvusStandalone(MilvusLite):
    """The real server, in a network of its own, to which a port of this machine leads."""

    settings: tuple[str, ...] = QUICK

    def start(self) -> None:
        """Start, and wait until it is in health."""
        data = self.folder / "data"
        if not data.exists():  # it would unpack its programs anew for each folder
            data.mkdir()
            (data / "bin").symlink_to(STANDALONE.parent)
        with socket.create_server((LOOPBACK, self.port)) as listening:
            # A socket stays in the network it was made in, whoever holds it.
            door = listening.fileno()
            program = [str(STANDALONE), str(INSIDE), str(data), str(door), *self.settings]
            with (self.folder / "log").open("a") as log:
                self.process = subprocess.Popen(
                    [*ALONE, *program], pass_fds=[door], stdout=subprocess.PIPE, stderr=log
                )
        assert self.process.stdout
        with self.process.stdout as said:
            assert said.readline() == b"ready\n", (self.folder / "log").read_text()[-2000:]

    def stop(self) -> None:
        """Stop it; what it would put in order is removed with its folder."""
        self.kill()


def start_milvus(folder: Path) -> MilvusLite:
    """Start a Milvus: the small one, or the real server if MILVUS=server.

    Where that can't run the tests are skipped, unless MILVUS_SERVER=required.
    """
    if os.environ.get("MILVUS") != "server":
        return MilvusLite(folder)
    if problem := why_not():
        if os.environ.get("MILVUS_SERVER") == "required":
            pytest.fail(problem)
        pytest.skip(problem)
    return MilvusStandalone(folder)


def why_not() -> str:
    """Say in a sentence why the real server can't run here, if so."""
    if not STANDALONE.with_name("milvus").exists():
        return "Milvus 2.3.5 is not installed; run: make .venv-milvus/server.stamp"
    try:
        tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return (
            "Milvus 2.3.5 needs a network of its own, by `unshare` of util-linux, which is missing."
        )
    if tried.returncode:
        reason = tried.stderr.strip() or signal.strsignal(-tried.returncode)
        return f"Milvus 2.3.5 needs a network of its own, which is not allowed here ({reason})."
    return ""
