"""One search over a Ray cluster: a killed worker loses nothing, a head that is gone ends the run with one line."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest

from collage_evo.errors import ConfigError
from collage_evo.fitness.measure.executor import Executor
from collage_evo.testing.models import tiny_convnet
from tests.fitness.helpers import cluster_run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@dataclass
class Head:
    address: str
    processes: list[psutil.Process]


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """A Ray head with one worker, and a secret of its own. The folder's name has to be short."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "token"
        secret.write_text(secrets.token_hex(32))
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(secret))
        command = f"start --head --port {port} --num-cpus 1 --node-ip-address 127.0.0.1 --temp-dir {folder} --block"
        quiet = "--include-dashboard false --disable-usage-stats --object-store-memory 80000000"
        program = [sys.executable, "-m", "ray.scripts.scripts", *command.split(), *quiet.split()]
        started = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list(Path(folder).glob("session_2*/sockets/raylet")):
            assert started.poll() is None
            time.sleep(0.2)
        family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
        yield Head(f"127.0.0.1:{port}", family)
        for process in family:
            if process.is_running():
                process.kill()
        started.wait()


def outcomes_of(checkpoint: Path) -> list[dict[str, Any]]:
    state = json.loads(checkpoint.read_text())["body"]["state"]
    return [found["outcome"] for found in state["evaluated"].values()]


def test_a_killed_worker_loses_nothing_and_a_head_that_is_gone_ends_the_run(head: Head, tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    checkpoint = tmp_path / "run" / "checkpoint.json"
    run = cluster_run(tmp_path, "ray", head.address, evaluations=500)

    def wait_for(measured: int) -> list[dict[str, Any]]:
        while not checkpoint.exists() or len(outcomes_of(checkpoint)) < measured:
            assert run.poll() is None, run.communicate()
            time.sleep(0.05)
        return outcomes_of(checkpoint)

    first = wait_for(1)
    worker = first[0]["worker"]
    os.kill(int(worker.rpartition("/")[2]), signal.SIGKILL)
    outcomes = wait_for(len(first) + 10)
    assert not [o["reason"] for o in outcomes if "died" in o["reason"]]
    assert {o["worker"] for o in outcomes} > {worker}
    for process in head.processes:
        if "gcs_server" in process.name():
            process.kill()
    errors = run.communicate()[1].splitlines()
    assert run.returncode == 3
    assert [line for line in errors if line.startswith(f"error: no Ray cluster answers at {head.address}")]
    assert len(outcomes_of(checkpoint)) >= len(outcomes)


def test_an_address_without_a_port_is_named() -> None:
    with pytest.raises(ConfigError, match="give host and port"):
        Executor("ray", "auto").workers()
