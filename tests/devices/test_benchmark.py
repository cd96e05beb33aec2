"""The benchmark of the device runs as it is shown."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collage_evo.backends import registry
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.target.target import Target
from tests.runtime.device_helpers import DEVICE, placed
from tests.support.cuda import FakeCuda
from tests.support.cuda.backend import FakeGpuBackend
from tests.support.faults import install_backend
from tests.support.models import tiny_branchy

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "device.py"
COPIES = ("--bytes", "64", "4096")
SMALL = ("--rounds", "2", *COPIES, "--work", "3", "--seconds", "0", "--held", "4096", "--turn", "0.01")


def test_it_shows_what_a_device_costs(fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, FakeGpuBackend.name, FakeGpuBackend)
    artifact = tmp_path / "net.collage"
    with fake_cuda.used():
        program = placed(tiny_branchy(), tmp_path, DEVICE)
        write_artifact(artifact, [Profile(program)], Target.here("cuda", 1))
    environment = {**os.environ, **fake_cuda.environment, **install_backend(tmp_path / "plugin", FakeGpuBackend)}
    command = (sys.executable, str(SCRIPT), "device.json", "--artifact", str(artifact), *SMALL)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for words in ("Fake GPU", "out of memory on the GPU", "session against itself", "beside that work", "same time"):
        assert words in done.stdout
    raw = json.loads((tmp_path / "device.json").read_text())
    ways = ("64 bytes to the device", "64 bytes to the host", "4096 bytes to the device", "4096 bytes to the host")
    pieces = ("one by one", "as a graph, in turn", "as a graph, at the same time")
    calls = {"nothing", *ways, *(f"3 pieces {way}" for way in pieces)}
    assert set(raw["wall_ms"]) == set(raw["events_ms"]) == calls
    assert all(len(times) == 2 for times in raw["wall_ms"].values())
    assert set(raw["sessions"]) == {"a", "b", "regions"}
