"""A real Milvus on loopback, started for the tests: milvus-lite, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

MILVUS_LITE = Path(sys.executable).with_name("milvus-lite")


class MilvusServer:
    """A server with a folder of its own, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        place = ["--data-dir", str(self.folder / "data"), "--host", "127.0.0.1"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [MILVUS_LITE, "server", *place, "--port", str(self.port)], stdout=log, stderr=log
            )
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
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
