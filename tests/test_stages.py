"""What a backend does to a run's own process: nothing, wherever it is asked to compile. How long a search takes."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from collage_evo.backends.base import BuildFailure
from collage_evo.config import SearchConfig, changed, parse_config
from collage_evo.fitness.costs.model import CostModel
from collage_evo.genome.search.settings import Budget
from collage_evo.patterns.match import Placement, Region
from collage_evo.report.progress import LineReporter
from collage_evo.run.budget import SEARCHED_BY_S, search_budget
from collage_evo.run.open import open_run
from collage_evo.run.stages.answer import write_placements
from collage_evo.run.stages.model import normalise
from collage_evo.runtime.artifact import read_artifact
from collage_evo.testing.models import chain
from tests.support.faults import install_faulty


def test_a_backend_that_crashes_in_the_final_compile_fails_its_placement_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in install_faulty(tmp_path / "plugin").items():
        monkeypatch.setenv(name, value)
    onnx.save(chain(1), tmp_path / "tiny.onnx")
    config = parse_config(
        {"model": {"source": str(tmp_path / "tiny.onnx")}, "cache": {"dir": str(tmp_path / "cache")}}, (), "test"
    )
    with open_run(config, tmp_path / "run", LineReporter()) as (run, model):
        graph = normalise(run, model).graph
        space: Any = SimpleNamespace(graph=graph, cost=CostModel((), {}))

        def placed(backend: str, variant: str) -> Placement:
            rest = graph.all_nodes & ~1
            regions = [Region(1, backend, variant), *([Region(rest, "onnxruntime", "default")] if rest else [])]
            return Placement(tuple(regions))

        named = {
            "crashing": placed("faulty", "crash-building"),
            "refused": placed("faulty", "unbuildable"),
            "good": placed("onnxruntime", "default"),
        }
        written = write_placements(run, named, space)
    assert written["crashing"] == BuildFailure("crash: killed by SIGSEGV")
    assert written["refused"] == BuildFailure("build: faulty: cannot be built, on purpose")
    assert isinstance(written["good"], Path)
    found = read_artifact(written["good"])
    assert {piece.backend for piece in found.program.pieces} == {"onnxruntime"}
    assert (found.profiles[0].info["key"], found.target.digest) == (named["good"].key, run.target.digest)


@pytest.mark.parametrize(
    ("given", "spent_s", "seconds"),
    [
        (SearchConfig(), 0.0, 90.0),
        (SearchConfig(), SEARCHED_BY_S - 50.0, 50.0),
        (SearchConfig(), 1e6, 30.0),
        (SearchConfig(seconds=90.0), 1e6, 90.0),
        (SearchConfig(evaluations=10), 1e6, 90.0),
        (SearchConfig(seconds=math.inf, evaluations=10), 1e6, None),
    ],
)
def test_a_search_that_begins_late_has_less_time_unless_it_is_given(
    tmp_path: Path, given: SearchConfig, spent_s: float, seconds: float | None
) -> None:
    (tmp_path / "work").mkdir()
    assert search_budget(tmp_path, given, spent_s) == Budget(given.evaluations, seconds)


@pytest.mark.parametrize("given", [{}, {"search": {"seconds": 60}}, {"search": {"seconds": math.inf}}])
def test_a_configuration_that_is_passed_on_gives_no_more_than_it_was_given(given: dict[str, Any]) -> None:
    config = parse_config({"model": {"source": "builtin:squeezenet"}, **given}, (), "test")
    assert changed(config, (), "test") == config
    assert changed(config, {"target.threads": 2}, "test").search == config.search
