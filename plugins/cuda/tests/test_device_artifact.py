"""Artifacts for a device: served in a fresh process where it is, one line and exit code 3 where it is not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import collage_evo
from collage_evo.backends.variants import Variant
from collage_evo.errors import UnavailableError
from collage_evo.hardware.target import Target
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.session import Session
from device_helpers import DEVICE, HOST, placed
from stand_in import FakeCuda
from stand_in.backend import FakeGpuBackend
from tests.cli.commands import Run, collage
from tests.runtime.helpers import CONVNET, sums, whole
from tests.support.faults import install_backend

pytestmark = pytest.mark.usefixtures("fake_gpus")


@pytest.fixture
def artifact(fake_cuda: FakeCuda, tmp_path: Path) -> Path:
    directory = tmp_path / "a.collage"
    with fake_cuda.used():
        program = placed(CONVNET, tmp_path / "pieces", DEVICE, DEVICE, HOST)
        write_artifact(directory, [Profile(program)], Target.here("cuda", 1))
    return directory


def executed(artifact: Path, **environment: str) -> Run:
    """The command, in a process that finds the test's backend as it finds any other."""
    known = install_backend(artifact.parent / "site", FakeGpuBackend)
    return collage("exec", artifact, "--json", "--repeat", 5, cwd=artifact.parent, **{**known, **environment})


def test_a_fresh_process_that_has_the_device_runs_it(artifact: Path, fake_cuda: FakeCuda) -> None:
    done = executed(artifact, **fake_cuda.environment, FAKE_CUDA_LAZY="1")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["regions"]) == len(CONVNET.graph.node)
    assert report["device_ms"] > 0


def test_where_the_driver_is_not_one_line_says_so(artifact: Path) -> None:
    if "LD_LIBRARY_PATH" in os.environ or Path("/proc/driver/nvidia").exists():
        pytest.skip("there may be a driver")
    done = executed(artifact)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "Fake GPU, compute capability 9.0" in done.stderr
    assert "the NVIDIA driver's libcuda.so.1 is not installed" in done.stderr


def test_without_a_device_of_the_same_capability_it_is_not_loaded(artifact: Path, fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_devices=0), pytest.raises(UnavailableError, match=r"finds no device.*target.device=cpu"):
        collage_evo.load(artifact)
    with (
        fake_cuda.used(cuda_capability="8.0"),
        pytest.raises(UnavailableError, match=r"made for Fake GPU, compute capability 9.0.*here is.*capability 8.0"),
    ):
        collage_evo.load(artifact)


def test_a_variant_that_its_backend_declines_is_not_loaded(
    artifact: Path, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declines(self: FakeGpuBackend, variant: Variant) -> str:
        return f"no {variant.name} today"

    monkeypatch.setattr(FakeGpuBackend, "declines", declines)
    with fake_cuda.used(), pytest.raises(UnavailableError, match="needs fakegpu: no default today"):
        collage_evo.load(artifact)


def test_a_damaged_manifest_that_names_no_such_device_is_refused(artifact: Path, fake_cuda: FakeCuda) -> None:
    path = artifact / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "target": {**manifest["target"], "device": "tpu"}}))
    with fake_cuda.used(), pytest.raises(UnavailableError, match="the plug-in for tpu is not installed"):
        collage_evo.load(artifact)


def test_profiles_share_the_device_and_a_fall_back_of_the_host_takes_the_rest(
    artifact: Path, fake_cuda: FakeCuda, tmp_path: Path
) -> None:
    with fake_cuda.used(cuda_lazy=1):
        target = Target.here("cuda", 1)
        programs = [placed(sums(rows), tmp_path / "pieces", DEVICE) for rows in (2, 3)]
        with Session(programs, target, fallback=whole(sums("rows"), tmp_path / "pieces")) as session:
            for rows in (2, 3, 5, 2):
                x = np.full((rows, 4), rows - 3.0, np.float32)
                (y,) = session.run(None, {"x": x, "k": np.array([rows])})
                np.testing.assert_array_equal(y, np.maximum(x, 0) * rows)
