"""A training that two machines share: two agents of torchrun, which meet over loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from pseudoquery.errors import ModelError
from pseudoquery.training.checkpoints import find_last_checkpoint, is_whole
from pseudoquery.training.config import read_config
from pseudoquery.training.distributed import (
    broadcast_from_first,
    explain_lost_process,
    fail_together,
)
from pseudoquery.training.train import train
from tests.support.collection import write_collection
from tests.support.training import same, weights, without_dropout
from tests.training.test_distributed import write_config

# --- one process, and what it makes of the others' ends


def test_one_process_agrees_with_itself() -> None:
    assert broadcast_from_first("checkpoint-4") == "checkpoint-4"
    with fail_together():
        pass
    with pytest.raises(KeyError, match="broken"), fail_together():
        raise KeyError("broken")


def test_a_lost_process_is_told_in_one_sentence() -> None:
    for error in (
        torch.distributed.DistNetworkError("closed"),
        RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
    ):
        with pytest.raises(ModelError, match="start all processes again"), explain_lost_process():
            raise error
    with pytest.raises(RuntimeError, match="shapes differ"), explain_lost_process():
        raise RuntimeError("shapes differ")


# --- two agents


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start_agents(paths: Sequence[Path]) -> list[subprocess.Popen[str]]:
    """Start an agent for each configuration, with one worker each, as two machines would."""
    port = free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--nnodes={len(paths)}", "--nproc-per-node=1", "--rdzv_backend=c10d"),
                *(f"--rdzv_endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1"),
                *("-m", "pseudoquery.cli", "train", str(path), "--json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for path in paths
    ]


def end_of(agents: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Wait for the agents: how each ended, what it printed, and what it complained about."""
    said = [agent.communicate(timeout=300) for agent in agents]
    return [(agent.returncode, *output) for agent, output in zip(agents, said, strict=True)]


def worker_of(agent: subprocess.Popen[str]) -> int:
    (worker,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return int(worker)


@pytest.mark.slow
def test_two_agents_train_as_one_process_and_go_on_after_a_kill(
    tmp_path: Path, tiny_model_path: str
) -> None:
    for name in ("set", "other"):
        write_collection(tmp_path / name)
    model = without_dropout(tiny_model_path, tmp_path / "start")

    ends = end_of(start_agents([write_config(tmp_path, model, "whole")] * 2))
    assert [code for code, _, _ in ends] == [0, 0], ends
    (printed,) = filter(None, (out for _, out, _ in ends))  # by the first process alone
    whole = tmp_path / "whole"
    assert json.loads(printed)["model"] == str(whole / "model")
    mined = sorted(path.name for path in (whole / "negatives").iterdir())
    assert mined == ["00000000.jsonl", "00000004.jsonl", "00000008.jsonl"]
    last = whole / "checkpoints" / "checkpoint-12"
    assert is_whole(last)
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in last.iterdir()}

    train(read_config(write_config(tmp_path, model, "one")))
    expected, start = weights(tmp_path / "one" / "model"), weights(Path(model))
    for name, value in weights(whole / "model").items():
        # Attention does not depend on the keys' bias: its gradient is rounding, made large by Adam.
        if not name.endswith("key.bias"):
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-5, msg=name)
    query = "0.model.encoder.layer.0.attention.self.query.weight"
    assert float((expected[query] - start[query]).abs().max()) > 1e-3  # much more than rounding

    path = write_config(tmp_path, model, "killed")
    killed = start_agents([path] * 2)
    checkpoints = tmp_path / "killed" / "checkpoints"
    while find_last_checkpoint(checkpoints) is None and killed[0].poll() is None:
        time.sleep(0.001)
    os.kill(worker_of(killed[0]), signal.SIGKILL)
    assert all(code for code, _, _ in end_of(killed))  # the other does not wait for ever
    assert find_last_checkpoint(checkpoints)
    assert not (tmp_path / "killed" / "model").exists()
    ends = end_of(start_agents([path] * 2))
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert same(weights(tmp_path / "killed" / "model"), weights(whole / "model"))


@pytest.mark.slow
def test_machines_that_would_train_something_else(tmp_path: Path, tiny_model_path: str) -> None:
    for name in ("set", "other"):
        write_collection(tmp_path / name)
    path = write_config(tmp_path, tiny_model_path, "out")
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace("negatives = 2", "negatives = 1"))
    ends = end_of(start_agents([path, other]))
    assert all(code for code, _, _ in ends)
    # Whichever machine has the first process, one of the two says it, and often both do.
    said = "".join(err for _, _, err in ends)
    assert "config.json, which the first process has written, differs from" in said
    assert "bug" not in said
