"""An artifact is held against libraries as they come, and measured again, here and now; what was there stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.commands.compare import compare
from collage_evo.commands.compared import subjects
from collage_evo.commands.recheck import recheck, write_rechecked
from collage_evo.config import parse_config
from collage_evo.errors import InputError
from collage_evo.report.comparison import OVER_BUDGET, Comparison
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import start_run
from collage_evo.run.flow import Flow, evaluate
from collage_evo.target.levels import LEVELS, SWITCH
from collage_evo.target.processor import this_machine
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK, nested

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proof")
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    given = {**QUICK, "model.source": str(folder / "tiny.onnx"), "cache.dir": str(folder / "cache")}
    config = start_run(folder / "run", parse_config(nested(given), (), "test"))
    evaluate(config, folder / "run", LineReporter(), Flow.result)
    return folder / "run"


def compared(
    place: Path, against: Path | None = None, data: Path | None = None, libraries: Sequence[str] = ("onnxruntime",)
) -> Comparison:
    (subject,) = subjects(place, against, str(data) if data else None)
    return compare(subject, LineReporter(), libraries=libraries, seconds=1.0)


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
    assert found.ours.error is not None
    assert found.ours.error <= found.budget if found.budget else False
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


def test_what_is_measured_again_lies_beside_what_was_there(run: Path) -> None:
    before = contents(run)
    (subject,) = subjects(run, None, None)
    written = [write_rechecked(subject, [recheck(subject, LineReporter(), 1.0)], run) for _ in range(2)]
    after = contents(run)
    assert {path.name for path in after.keys() - before.keys()} == {path.name for path in written}
    assert {path: after[path] for path in before} == before
    (told,) = json.loads(written[0].read_text())
    (answer,) = [point for point in told["points"] if point["before"]["answer"]]
    assert answer["now"]["feasible"]
    assert answer["now"]["latency_ms"] > 0.0


def test_of_an_artifact_alone_what_it_says_of_itself_is_measured_again(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run / "best.collage", tmp_path / "moved.collage")
    (subject,) = subjects(moved, run.parent / "tiny.onnx", None)
    found = recheck(subject, LineReporter(), 1.0)
    assert found.answer is not None
    assert found.answer.now is not None
    assert write_rechecked(subject, [found], moved) == tmp_path / "moved.rechecked" / "000.json"


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
    again = collage("recheck", run, "--json")
    assert again.returncode == 0, again.stderr
    (told,) = json.loads(again.stdout)
    assert "lacks" in told["other_processor"]
    assert told["points"][0]["now"]["feasible"]
