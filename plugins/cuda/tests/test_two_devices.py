"""A run on a device beside the host, from the command to the artifact that is served, on the driver for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from stand_in import FakeCuda
from stand_in.halves import DeviceHalf
from tests.cli.commands import Run, collage
from tests.support.clock import install_clock
from tests.support.faults import install_backend
from tests.support.halves import HostHalf
from tests.support.models import chain
from tests.support.quick import QUICK, options

pytestmark = pytest.mark.slow

RUN = {
    **QUICK, "target.device": "cuda", "backends.use": ["hosthalf", "devicehalf"], "search.evaluations": 4,
    "final.rounds": 5, "final.seconds": 120, "costs.seconds": 300,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A folder with tiny.onnx, two convolutions with their Relu; what processes there find: driver and backends."""

    folder: Path
    environment: Mapping[str, str]

    def collage(self, *arguments: object, **environment: str) -> Run:
        return collage(*arguments, cwd=self.folder, **{**self.environment, **environment})

    def result(self, run: str = "run") -> Any:
        return json.loads((self.folder / run / "result.json").read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, fake_cuda: FakeCuda) -> Place:
    folder = tmp_path_factory.mktemp("two-devices")
    onnx.save(chain(2), folder / "tiny.onnx")
    # What is enqueued runs when somebody waits: a forgotten wait is a wrong result.
    environment: Mapping[str, str] = {**fake_cuda.environment, "FAKE_CUDA_LAZY": "1"}
    install_clock(folder / "site")
    for backend in (HostHalf, DeviceHalf):
        environment = {**environment, **install_backend(folder / "site", backend)}
    return Place(folder, environment)


@pytest.fixture(scope="module")
def finished(place: Place) -> Place:
    """With a finished run in run/."""
    done = place.collage("run", "tiny.onnx", "--out", "run", *options(RUN))
    assert done.returncode == 0, done.stderr
    return place


def test_each_engine_of_both_devices_is_a_baseline(finished: Place) -> None:
    result = finished.result()
    alone = {row["name"]: row["median_ms"] for row in result["baselines"] if not row["name"].startswith("greedy")}
    assert alone.keys() == {"hosthalf", "devicehalf", "devicehalf/plain"}
    assert all(alone.values())
    assert result["target"]["device"] == "cuda"
    assert "Fake GPU" in result["target"]["accelerator"]


def test_each_part_goes_to_the_device_that_is_fast_at_it(finished: Place) -> None:
    result = finished.result()
    assert result["answer"] == "placement"
    assert result["speedup_over_best_single"]["estimate"] > 1.2
    placed = [(region["backend"], region["variant"], region["device"]) for region in result["placement"]]
    assert placed == [("devicehalf", "plain", "cuda"), ("hosthalf", "default", "cpu")] * 2
    assert set(result["cost_model"]["copies"]) == {"to_device", "to_host"}


def test_why_something_is_not_captured_is_a_note(finished: Place) -> None:
    assert any("devicehalf/plain not captured: " in note for note in finished.result()["notes"])


SERVE = """
import collage_evo, json, numpy as np, onnx, sys
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
session = collage_evo.load(sys.argv[1])
shapes = {i.name: i.shape for i in session.get_inputs()}
x = {name: np.random.default_rng(7).standard_normal(shape).astype("float32") for name, shape in shapes.items()}
for _ in range(3):
    outputs = session.run(None, x)
print(json.dumps([relative_error(outputs, reference_outputs(onnx.load("tiny.onnx"), x)).relative, session.notes]))
"""


@pytest.mark.parametrize(("artifact", "captured"), [("best", False), ("baselines/devicehalf", True)])
def test_an_artifact_is_right_in_a_fresh_process_captured_or_not(
    finished: Place, artifact: str, captured: bool
) -> None:
    command, own = [sys.executable, "-c", SERVE, f"run/{artifact}.collage"], {**os.environ, **finished.environment}
    done = subprocess.run(command, cwd=finished.folder, env=own, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    error, notes = json.loads(done.stdout)
    assert error < 1e-4
    assert (not notes) == captured


def test_without_the_device_an_artifact_for_it_is_refused_in_one_line(finished: Place) -> None:
    done = finished.collage("exec", "run/best.collage", LD_LIBRARY_PATH="")
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Fake GPU" in done.stderr


def test_a_run_is_resumed_with_what_it_measured(finished: Place) -> None:
    costs = (finished.folder / "run" / "work" / "costs.json").read_bytes()
    done = finished.collage("resume", "run", "-s", "search.evaluations=5")
    assert done.returncode == 0, done.stderr
    assert "going on with the search" in done.stderr
    assert "each single library" not in done.stderr
    assert (finished.folder / "run" / "work" / "costs.json").read_bytes() == costs


def test_explain_says_on_which_device_each_offer_runs(finished: Place) -> None:
    done = finished.collage("explain", "run", "--region", 0, "--json")
    assert done.returncode == 0, done.stderr
    offers = {
        (answer["backend"], offer["variant"]): (offer["device"], offer["ms"])
        for answer in json.loads(done.stdout)["answers"]
        for offer in answer["offers"]
    }
    assert offers["devicehalf", "plain"][0] == "cuda"
    assert offers["devicehalf", "plain"][1] > 0
    assert offers["hosthalf", "default"][0] == "cpu"
    assert ("devicehalf", "missing") not in offers
    node = finished.result()["placement"][0]["nodes"][0]
    done = finished.collage("explain", "run", "--node", node, COLUMNS="200")
    assert "devicehalf/plain on cuda" in done.stdout, done.stderr


def test_pick_answers_without_a_new_search(finished: Place) -> None:
    done = finished.collage("pick", "run", "--budget", "exact")
    assert done.returncode == 0, done.stderr
    (picked,) = (finished.folder / "run" / "picked").iterdir()
    assert finished.collage("exec", picked / "best.collage", "--repeat", 1).returncode == 0
    result = json.loads((picked / "result.json").read_text())
    assert {"hosthalf", "devicehalf/plain"} <= {row["name"] for row in result["baselines"]}
    assert {row["device"] for row in result["placement"]} <= {"cpu", "cuda"}


def test_where_every_backend_declines_the_device_the_line_says_why(place: Place) -> None:
    done = place.collage("run", "tiny.onnx", "-s", "target.device=cuda", "-s", "backends.use=[hosthalf]")
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "hosthalf: no variant for cuda" in line
    assert "configs/resnet_cpu.yaml" in line
    known = json.loads(place.collage("backends", "--json").stdout)["devicehalf"]
    assert known["declined"] == {"missing": "no kernels for this device"}
    assert known["devices"] == ["cuda"]
