"""A finished run answers another budget without a new search, and keeps its own answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.commands.pick import pick_answer
from collage_evo.config import parse_config
from collage_evo.errors import CollageError, ConfigError, InputError
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import start_run
from tests.cli.commands import Run, collage
from tests.support.clock import install_clock
from tests.support.faults import install_backend
from tests.support.models import chain
from tests.support.quick import QUICK, options
from tests.support.rounding import ERROR, RoundingBackend

pytestmark = pytest.mark.slow

FAST = {
    **QUICK, "backends.use": ["rounding"], "accuracy.budget": 0.02, "verify.tolerance": 0.02, "search.evaluations": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Finished:
    """A run of two operators in a backend that is fast where it is wrong by ``ERROR``."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def collage(self, *args: object) -> Run:
        return collage(*args, cwd=self.folder, **self.environment)

    def result(self, where: str = "") -> Any:
        return json.loads((self.run / where / "result.json").read_text())

    def written(self) -> dict[str, str]:
        """Digests of what a run leaves for a person, and of what it goes on from."""
        paths = [self.run / name for name in ("result.json", "report.html", "checkpoint.json", "config.yaml")]
        paths += sorted(path for path in (self.run / "best.collage").rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("pick")
    onnx.save(chain(1), folder / "tiny.onnx")
    install_clock(folder / "plugin")
    found = Finished(folder, install_backend(folder / "plugin", RoundingBackend))
    done = found.collage("run", "tiny.onnx", "--out", "run", *options(FAST))
    assert done.returncode == 0, done.stderr
    return found


def answer(result: Any) -> Any:
    (found,) = [point for point in result["front"] if point["answer"]]
    return found


def test_a_run_takes_the_faster_arithmetic_within_its_budget_and_shows_both(finished: Finished) -> None:
    result = finished.result()
    assert answer(result)["error"] == pytest.approx(ERROR, rel=0.5)
    alone = {point["single"]: point for point in result["front"] if point["single"]}
    assert alone["rounding"]["arithmetics"] == ["float32"]
    assert alone["rounding/low"]["arithmetics"] == ["bfloat16"]
    assert alone["rounding/low"]["latency_ms"] < alone["rounding"]["latency_ms"]
    assert '<svg class="front"' in (finished.run / "report.html").read_text()


def test_another_budget_has_its_own_answer_beside_the_run_s_own(finished: Finished) -> None:
    before = finished.written()
    done = finished.collage("pick", "run", "--budget", "exact")
    assert done.returncode == 0, done.stderr
    assert "run/picked/exact/best.collage" in done.stdout
    tables = finished.collage("show", "run/picked/exact", "--all")
    assert "latency against error, float32 only" in " ".join(tables.stdout.split())
    assert finished.written() == before
    picked = finished.result("picked/exact")
    assert answer(picked)["arithmetics"] == ["float32"]
    assert picked["accuracy"]["budget"] == "exact"
    assert picked["numerics"]["max_relative_error"] < ERROR / 10
    assert {point["key"] for point in picked["front"]} == {point["key"] for point in finished.result()["front"]}
    assert finished.collage("exec", "run/picked/exact/best.collage", "--repeat", 2).returncode == 0


def test_what_was_picked_is_exported_and_compared_as_the_run_s_own_answer_is(finished: Finished) -> None:
    assert finished.collage("pick", "run", "--budget", "0.5").returncode == 0
    done = finished.collage("export", "run/picked/0.5", "--onnx", "picked.onnx")
    assert done.returncode == 0, done.stderr
    for place in ("run/picked/0.5", "run/picked/0.5/best.collage"):
        done = finished.collage("compare", place, "--library", "rounding", "--seconds", 1, "--json")
        told = json.loads(done.stdout)
        assert (told["file"], told["budget"]) == ("the file kept in the run", 0.5)


def test_where_nothing_keeps_a_budget_the_best_backend_in_float32_is_the_answer(finished: Finished) -> None:
    done = finished.collage("pick", "run", "--budget", "1e-12", "--json")
    assert done.returncode == 0, done.stderr
    picked = json.loads(done.stdout)
    assert picked["answer"] == "rounding"
    assert not any(point["feasible"] for point in picked["front"])
    assert "nothing that was measured meets" in " ".join(picked["accuracy"]["notes"])
    assert answer(picked)["arithmetics"] == ["float32"]
    assert "exceeds the budget" in next(row["reason"] for row in picked["baselines"] if row["name"] == "rounding/low")


def refusal(error: type[CollageError], directory: Path, budget: str = "exact") -> str:
    with pytest.raises(error) as raised:
        pick_answer(directory, budget, LineReporter())
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("budget", ["much", "0", "-0.1", "inf", "nan", ""])
def test_what_is_no_budget_is_refused(tmp_path: Path, budget: str) -> None:
    assert f"--budget {budget}: give" in refusal(ConfigError, tmp_path, budget)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    assert "no run directory" in refusal(InputError, tmp_path / "nowhere")
    config = parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test")
    start_run(tmp_path / "run", config)
    assert "has not ended" in refusal(InputError, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{}")
    assert "work, which is missing" in refusal(InputError, tmp_path / "run")
    (tmp_path / "run" / "profiles" / "0").mkdir(parents=True)
    assert "several profiles" in refusal(InputError, tmp_path / "run")
    start_run(tmp_path / "sweep", config, kind="sweep")
    assert "is a sweep" in refusal(InputError, tmp_path / "sweep")
