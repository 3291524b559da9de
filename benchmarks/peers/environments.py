"""An environment for each peer, so that none has to live with another's dependencies.

Most of them share the libraries of this project's own environment, which they look into after their
own folder: torch alone is gigabytes. PyLate asks for older versions of nearly everything, and its
fast-plaid for the very torch it was built with, so it gets an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a peer needs."""

    packages: tuple[str, ...]
    shared: bool = True
    """Whether this project's own libraries serve it."""


PEERS: dict[str, Environment | None] = {
    "faiss": None,
    "sentence_transformers": None,
    "bm25s": Environment(("bm25s==0.3.16", "PyStemmer==3.1.0", "numba==0.68.1")),
    "lancedb": Environment(("lancedb==0.40.0",)),
    "qdrant_edge": Environment(("qdrant-edge-py==0.9.0",)),
    "pylate": Environment(("pylate==1.6.0",), shared=False),  # three gigabytes, once
    "pseudoquery": None,
}
"""None: this very environment."""


def python_of(peer: str, folder: Path) -> Path:
    """Return the interpreter of a peer, in an environment that is made now or was made before."""
    wanted = PEERS[peer]
    if wanted is None:
        return Path(sys.executable)
    home = folder / peer
    stamp, told = home / "installed.txt", "\n".join(wanted.packages)
    python = home / "bin" / "python"
    if stamp.exists() and stamp.read_text() == told:
        return python
    print(f"  installing {', '.join(wanted.packages)}", flush=True)
    venv.create(home, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    if wanted.shared:
        inside = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})["purelib"]
        (Path(inside) / "project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        pip += [f"torch=={version('torch').partition('+')[0]}"]  # the one that is there, no newer
    subprocess.run([*pip, *wanted.packages], check=True, stderr=subprocess.PIPE, text=True)
    stamp.write_text(told)
    return python
