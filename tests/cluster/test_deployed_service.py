"""The service as deploy/service.yaml runs it: as another user, with nothing writable but /tmp."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pseudoquery.client import Client
from pseudoquery.milvus.index import MilvusIndex

pytestmark = pytest.mark.cluster
PROJECT = Path(__file__).parents[2]
DEPLOYMENT = next(yaml.safe_load_all((PROJECT / "deploy" / "service.yaml").read_text()))
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ROOM = ("unshare", "--map-root-user", "--mount")
BOX = """
mount -t tmpfs none /mnt
mkdir /mnt/model /mnt/project
mount --bind "$MODEL" /mnt/model
mount --bind "$PROJECT" /mnt/project
mount -t tmpfs none /tmp
mkdir -p "$MODEL" "$PROJECT"
mount --bind /mnt/model "$MODEL"
mount --bind /mnt/project "$PROJECT"
mount -o remount,bind,ro "$PROJECT"
mount -o remount,bind,ro /
cd /tmp
exec unshare --user --map-user="$AS_USER" --map-group="$AS_GROUP" "$@"
"""
"""In mounts of its own: a /tmp with nothing but the model, and the project if that is there; all
else is read-only."""


@pytest.fixture
def deployed(milvus: str, template: Path, address: str) -> Iterator[tuple[str, Any]]:
    """A service with the deployment's arguments, but for where Milvus is, and the port."""
    if subprocess.run([*ROOM, "true"], capture_output=True, check=False).returncode:
        pytest.skip(
            "this machine allows no mounts of one's own, so the service has no box to run in."
        )
    index = MilvusIndex.from_folder(address, template)
    arguments = [address if one.startswith("http://") else one for one in CONTAINER["args"]]
    arguments[arguments.index("--port") + 1] = "0"
    # As tokens, their names will do.
    environment = {one["name"]: one.get("value", one["name"]) for one in CONTAINER["env"]}
    environment |= {"PATH": os.environ["PATH"], "HOME": "/tmp", "HF_HUB_OFFLINE": "1"}
    environment |= {"MODEL": index.settings.model, "PROJECT": str(PROJECT)}
    security = POD["securityContext"]
    environment |= {"AS_USER": str(security["runAsUser"]), "AS_GROUP": str(security["runAsGroup"])}
    program = [sys.executable, "-m", "pseudoquery.cli", *arguments, "--json"]
    with subprocess.Popen(
        [*ROOM, "sh", "-euc", BOX, "sh", *program],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout
        said = process.stdout.readline()
        assert said, "it says on standard error why it can't start"
        yield json.loads(said)["url"].replace("0.0.0.0", "127.0.0.1"), process
        process.kill()


def test_it_answers_and_ends_well(deployed: tuple[str, Any]) -> None:
    url, process = deployed
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    mounts = Path(f"/proc/{process.pid}/mounts").read_text().splitlines()
    root = next(line.split() for line in reversed(mounts) if line.split()[1] == "/")
    assert "ro" in root[3].split(",")
    client = Client(url, "PSEUDOQUERY_READ_TOKEN")
    assert client.ready()
    assert client.search("the river", 1).hits
    assert client.explain("the river", "id 3").pseudo_queries
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
