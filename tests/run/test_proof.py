"""An artifact is compared with libraries and with its run's front, here and now; what was there stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.cli.shapes import shape_values
from collage_evo.commands.compare import compare
from collage_evo.commands.compared import subjects
from collage_evo.config import parse_config
from collage_evo.errors import InputError, UnavailableError
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import this_machine
from collage_evo.report.comparison import AGAIN, OVER_BUDGET, SLOWER, Comparison, verdict
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import FrontPoint
from collage_evo.run.directory import start_run
from collage_evo.run.recorded import RecordedRun, read_runs
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, whole
from tests.support.models import parse_graph, tiny_convnet
from tests.support.quick import QUICK, nested
from tests.support.runs import run_in
from tests.support.typed import not_none

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proof")
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    given = {**QUICK, "model.source": str(folder / "tiny.onnx"), "cache.dir": str(folder / "cache")}
    run_in(folder / "run", start_run(folder / "run", parse_config(nested(given), (), "test")))
    return folder / "run"


def compared(
    place: Path,
    against: Path | None = None,
    data: Path | None = None,
    libraries: Sequence[str] = ("onnxruntime",),
    front: bool = False,
    python: str = "",
) -> Comparison:
    (subject,) = subjects(place, against, str(data) if data else None)
    return compare(subject, LineReporter(), libraries=libraries, seconds=1.0, front=front, python=python)


def samples(path: Path, count: int) -> Path:
    np.savez(path, x=np.random.default_rng(5).standard_normal((count, 3, 16, 16)).astype(np.float32))
    return path


def contents(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_s_answer_is_held_against_libraries_on_the_file_that_the_run_kept(run: Path) -> None:
    before = contents(run)
    found = compared(run, libraries=("onnxruntime", "openvino"))
    assert contents(run) == before
    assert found.file == "the file kept in the run"
    assert {side.name for side in found.libraries} == {"onnxruntime", "openvino"}
    assert all(side.own_settings and side.latency_ms and side.error is not None for side in found.libraries)
    assert any(side.raced and side.over is not None and side.over.rounds for side in found.libraries)
    assert not_none(found.ours.error) <= found.budget if found.budget else False
    assert (found.other_file, found.other_processor, found.sample_source) == (False, "", "of random numbers")


def test_an_artifact_elsewhere_needs_its_file_and_is_judged_on_given_samples(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run / "best.collage", tmp_path / "moved.collage")
    with pytest.raises(InputError, match="it was called tiny"):
        subjects(moved, None, None)
    found = compared(moved, run.parent / "tiny.onnx", samples(tmp_path / "data.npz", 6))
    assert (found.samples, found.other_file) == (6, False)
    assert "data.npz" in found.sample_source
    assert not found.over_budget


def test_other_weights_are_told_and_are_over_the_budget(run: Path, tmp_path: Path) -> None:
    onnx.save(tiny_convnet(seed=1), tmp_path / "other.onnx")
    found = compared(run, tmp_path / "other.onnx")
    assert found.other_file
    assert found.exit_code(1.0) == OVER_BUDGET


def test_the_front_of_a_run_is_measured_again_and_its_files_stay(run: Path) -> None:
    before = contents(run)
    found = compared(run, libraries=(), front=True)
    assert contents(run) == before
    assert not found.libraries
    assert not_none(found.ours.before).answer
    assert (found.ours.feasible, found.ours.raced, found.exit_code(1.0)) == (True, True, 0)
    recorded = [point for point in read_runs(run)[0].front if not point.answer]
    assert sorted(side.before.how for side in found.front if side.before) == sorted(point.how for point in recorded)
    assert all(side.raced and side.over and side.error is not None for side in found.front)


def test_the_front_and_libraries_by_name_are_in_one_race(run: Path) -> None:
    found = compared(run, libraries=("onnxruntime",), front=True)
    assert [side.name for side in found.libraries] == ["onnxruntime"]
    assert found.ours.before is not None


def test_a_point_of_the_front_that_fails_here_has_the_reason(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = FrontPoint(1.0, 1e-6, "", "onnxruntime alone, float32", ("float32",), "onnxruntime", feasible=True)
    monkeypatch.setattr(RecordedRun, "front", (replace(point, answer=True), point))
    failure = Failure(Fault.REFUSED, "it needs another library")
    monkeypatch.setattr("collage_evo.commands.front_again.measure_one", lambda *_: Outcome.unfit(failure))
    found = compared(run, libraries=(), front=True)
    (side,) = found.front
    assert (side.latency_ms, side.feasible, "it needs another library" in side.reason) == (None, False, True)
    assert "Nothing of its front is faster" in verdict(found)


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter in whose environment the metadata of ONNX Runtime has another version."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "packages/onnxruntime-0.9.dist-info").mkdir(parents=True)
    (folder / "packages/onnxruntime-0.9.dist-info/METADATA").write_text("Name: onnxruntime\nVersion: 0.9\n")
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH={folder}/packages exec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    return folder / "python"


def test_an_answer_is_compiled_and_timed_with_the_libraries_of_another_environment(
    run: Path, other_python: Path
) -> None:
    before = contents(run)
    found = compared(run, python=str(other_python))
    assert contents(run) == before
    assert found.versions == {"onnxruntime": (metadata.version("onnxruntime"), "0.9")}
    names = {side.name: side for side in found.there}
    assert names.keys() == {"the artifact", "onnxruntime"}
    assert all(side.raced and side.feasible and side.over_here for side in names.values())
    assert [side.name for side in found.libraries] == ["onnxruntime"]
    advice = {0: "Keep the answer", SLOWER: "Do not upgrade", AGAIN: "Run the search again"}
    assert advice[found.exit_code(1.0)] in verdict(found)


def test_a_fall_back_is_compared_in_both_environments(run: Path, other_python: Path, tmp_path: Path) -> None:
    open_run = tmp_path / "open"
    model = parse_graph("g (float[n, 4] x) => (float[n, 4] y) { s = Exp(x) y = Relu(s) }")
    onnx.save(model, tmp_path / "m.onnx")
    given = {**QUICK, "model.source": str(tmp_path / "m.onnx"), "cache.dir": str(run.parent / "cache"),
             "model.shapes": {"x": [3, 4]}, "backends.use": ["onnxruntime"]}  # fmt: skip
    run_in(open_run, start_run(open_run, parse_config(nested(given), (), "test")))
    found = compared(open_run, python=str(other_python))
    assert [side.name for side in found.libraries if side.raced] == ["onnxruntime", "its fall-back"]
    assert all(side.raced and side.over_here for side in found.there)
    assert [side.name for side in found.there] == ["the artifact", "its fall-back", "onnxruntime"]


def test_another_environment_needs_this_package_and_the_run(run: Path, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho No module named collage_evo >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(UnavailableError, match=r"python does not run this package \(No module named collage_evo\)"):
        compared(run, python=str(tmp_path / "python"))
    with pytest.raises(UnavailableError, match=r"absent does not run this package .*: install collage-evo there"):
        compared(run, python=str(tmp_path / "absent"))
    moved = shutil.copytree(run / "best.collage", tmp_path / "moved.collage")
    with pytest.raises(InputError, match="placement is not known: give the run directory, or leave out --python"):
        compared(moved, run.parent / "tiny.onnx", python=sys.executable)


def test_an_artifact_elsewhere_is_measured_and_has_no_front(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run / "best.collage", tmp_path / "moved.collage")
    with pytest.raises(InputError, match="give the run directory, or leave out --front"):
        compared(moved, run.parent / "tiny.onnx", front=True)


def test_an_artifact_alone_is_judged_by_the_metric_that_it_was_made_by(run: Path, tmp_path: Path) -> None:
    moved, file = shutil.copytree(run / "best.collage", tmp_path / "moved.collage"), run.parent / "tiny.onnx"
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["profiles"][0]["info"]["accuracy"] = {"metric": "agreement", "over": "all", "budget": 0.25, "error": 0.0}
    (moved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="metric agreement: give samples"):
        subjects(moved, file, None)
    found = compared(moved, file, samples(tmp_path / "data.npz", 6))
    assert (found.metric, found.budget) == ("agreement", 0.25)


def test_on_a_lesser_processor_the_artifact_does_not_run_and_its_placement_is_compiled_for_it(run: Path) -> None:
    if this_machine().lacks(LEVELS["avx2"]) or not this_machine().held_to("avx2").other_than(this_machine()):
        pytest.skip("this processor cannot be held to a lesser one")
    environment = {**os.environ, SWITCH: "avx2"}

    def collage(*args: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "collage_evo", *map(str, args), "--seconds", "1"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)

    held = collage("compare", run, "--library", "onnxruntime")
    assert held.returncode == OVER_BUDGET, held.stderr
    assert "The artifact does not run here" in held.stdout
    again = collage("compare", run, "--front", "--json")
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert "lacks" in told["other_processor"]
    assert told["ours"]["feasible"]
    assert told["ours"]["latency_ms"] > 0.0


@pytest.fixture(scope="module")
def open_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact whose only program takes any ``n``, beside the model's file ``m.onnx``."""
    folder = tmp_path_factory.mktemp("open")
    model = parse_graph("g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { s = Add(x, z) y = Relu(s) }")
    onnx.save(model, folder / "m.onnx")
    write_artifact(folder / "a.collage", [Profile(whole(model, folder))], TARGET, signature_of(model))
    return folder / "a.collage"


def compared_at(artifact: Path, shapes: str | None, data: Path | None = None) -> list[Comparison]:
    file = artifact.with_name("m.onnx")
    found = subjects(artifact, file, str(data) if data else None, sizes=partial(shape_values, shapes))
    return [compare(one, LineReporter(), libraries=("onnxruntime",), seconds=1.0) for one in found]


def test_open_inputs_are_compared_at_sizes_within_ranges(open_artifact: Path) -> None:
    (found,) = compared_at(open_artifact, "n: 1..30")
    assert found.shapes == {"x": ["1..30", 4], "z": ["1..30", 4]}
    assert (found.sample_source, found.samples > 1) == ("of random numbers", True)
    assert found.ours.latency_ms is not None
    assert found.ours.error == 0.0


def test_open_inputs_are_compared_at_each_of_several_fixed_shapes(open_artifact: Path) -> None:
    shapes = [one.shapes for one in compared_at(open_artifact, "n: [2, 7]")]
    assert shapes == [{"x": [n, 4], "z": [n, 4]} for n in (2, 7)]


def test_open_inputs_are_compared_on_samples_of_all_sizes(open_artifact: Path, tmp_path: Path) -> None:
    for n in range(3, 11):
        np.savez(tmp_path / f"{n}.npz", **{name: np.ones((n, 4), np.float32) for name in ("x", "z")})
    (found,) = compared_at(open_artifact, None, tmp_path)
    assert found.shapes == {"x": ["3..10", 4], "z": ["3..10", 4]}
    assert found.samples == 8
    with pytest.raises(InputError, match=r"has x \[10, 4\], outside of n: 5\.\.9"):
        compared_at(open_artifact, "n: 5..9", tmp_path)


def test_without_sizes_or_with_sizes_of_fixed_inputs_nothing_is_compared(open_artifact: Path, run: Path) -> None:
    with pytest.raises(InputError, match="takes inputs of many sizes: give samples with --data, or sizes with --sha"):
        compared_at(open_artifact, None)
    with pytest.raises(InputError, match="has fixed shapes: leave out --shapes"):
        subjects(run, None, None, sizes=lambda file: {"shapes": {"x": [1, 3, 16, 16]}})
