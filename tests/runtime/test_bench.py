"""What moving a tensor between regions costs is told: at their borders, and for a copy from device to device."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.graph.ir.graph import Tensor
from collage_evo.runtime import bench
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.program import Piece, Program
from tests.runtime.helpers import TARGET, sums, whole

BORDERS = {
    "host/default": {"fixed_ms": 0.1, "ms_per_mb": 0.0},
    "device/default": {"fixed_ms": 0.2, "ms_per_mb": 0.0},
}
COPIES = {"to_device": {"fixed_ms": 1.0, "ms_per_mb": 2.0}, "to_host": {"fixed_ms": 3.0, "ms_per_mb": 0.0}}


def piece(backend: str, inputs: str, output: str) -> Piece:
    return Piece(Path(), backend, "default", tuple(inputs), (output,))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The host makes ``a``, which two regions of the device read, and reads what the second made."""
    monkeypatch.setattr(bench, "device_of", lambda backend, variant: "cuda" if backend == "device" else "cpu")
    made = (piece("host", "x", "a"), piece("device", "a", "b"), piece("device", "ab", "c"), piece("host", "c", "y"))
    tensors = {name: Tensor(name, "float32", (250_000,)) for name in "xabcy"}
    return Program(made, ("x",), ("y",), tensors)


def test_a_tensor_that_two_regions_of_a_device_read_is_copied_for_the_first(program: Program) -> None:
    found = [(hop.tensor, hop.target, hop.ms, hop.copy_ms) for hop in bench.transitions(program, BORDERS, COPIES)]
    assert found == [
        ("a", 1, pytest.approx(0.3), pytest.approx(3.0)),
        ("a", 2, pytest.approx(0.3), 0.0),
        ("c", 3, pytest.approx(0.3), pytest.approx(3.0)),
    ]


def test_what_an_artifact_does_not_tell_is_not_known(program: Program) -> None:
    found = bench.transitions(program, {}, {})
    assert [hop.ms for hop in found] == [None, None, None]
    assert [hop.copy_ms for hop in found] == [None, 0.0, None]


@pytest.mark.parametrize("cores", [(10**6,), (0, 10**20)])
def test_an_artifact_that_names_cores_which_are_not_here_is_not_timed(tmp_path: Path, cores: tuple[int, ...]) -> None:
    made = Profile(whole(sums(2), tmp_path / "pieces"))
    write_artifact(tmp_path / "a.collage", [made], replace(TARGET, cores=cores))
    command = [sys.executable, "-m", "collage_evo", "exec", str(tmp_path / "a.collage")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert f"core {cores[-1]} is not usable here" in done.stderr
    assert "Traceback" not in done.stderr
