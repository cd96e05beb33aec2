"""The benchmark of the device runs as it is shown."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.cuda import FakeCuda

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "device.py"


def test_every_cost_of_the_device_is_told(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    small = ("--rounds", "2", "--bytes", "64", "4096", "--work", "3", "--seconds", "0", "--held", "4096")
    command = (sys.executable, str(SCRIPT), "device.json", *small)
    environment = {**os.environ, **fake_cuda.environment, "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Fake GPU" in done.stdout
    assert "out of memory on the GPU" in done.stdout
    raw = json.loads((tmp_path / "device.json").read_text())
    assert set(raw["wall_ms"]) == set(raw["events_ms"]) == {
        "nothing",
        "64 bytes to the device",
        "64 bytes to the host",
        "4096 bytes to the device",
        "4096 bytes to the host",
        "3 pieces one by one",
        "3 pieces as a graph",
    }  # fmt: skip
    assert all(len(times) == 2 for times in raw["wall_ms"].values())
