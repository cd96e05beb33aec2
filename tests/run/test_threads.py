"""How many of the allowed threads a run uses: fewer where the single libraries are about as fast on fewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import Baseline
from collage_evo.commands.explain import ExplainedRun
from collage_evo.config import parse_config
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.slots import usable_cores
from collage_evo.policy import Policy
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.directory import save_run
from collage_evo.run.evaluate import on_threads_that_pay, open_records
from collage_evo.run.profiles import run_profiles
from collage_evo.run.stages import threads
from collage_evo.run.stages.threads import OnThreads, fewest, settled
from collage_evo.runtime.artifact import read_artifact
from tests.support.machine import FakeMachine, setting_of
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK_ALL_CORES, nested
from tests.support.runs import fake_run

POLICY = Policy(threads_pay=1.1)


@pytest.mark.parametrize(
    ("taken", "used"),
    [
        ({8: 1.0, 4: 0.8}, 4),  # then 2 takes for ever
        ({8: 1.0, 4: 1.05, 2: 1.08, 1: 1.09}, 1),
        ({8: 1.0, 4: 1.05, 2: 1.12}, 4),  # of the best, not of the last
        ({8: 1.0, 4: 1.2, 2: 0.1}, 8),
        ({3: 1.0, 1: 0.5}, 1),
        ({1: 1.0}, 1),
    ],
)
def test_the_fewest_threads_are_used_that_are_about_as_fast(taken: dict[int, float], used: int) -> None:
    allowed = max(taken)
    found = fewest(OnThreads(allowed, ((allowed, taken[allowed]),)), lambda number: taken.get(number, 100.0), POLICY)
    assert (found.used, found.allowed) == (used, allowed)
    assert bool(found.reason) == (used < allowed)


def test_all_threads_are_measured_again_before_fewer_are_taken() -> None:
    found = fewest(OnThreads(2, ((2, 0.47),)), {2: 0.28, 1: 0.39}.__getitem__, POLICY)
    assert found == OnThreads(2, ((2, 0.28), (1, 0.39)))


@pytest.mark.parametrize(("contended", "best_ms"), [(False, 0.3), (True, float("inf"))])
def test_a_time_that_others_disturbed_says_nothing_of_threads(contended: bool, best_ms: float) -> None:
    run = fake_run(Path(), FakeMachine(lambda job: None, setting_of(limits=Limits(1e-3))))
    found = [
        Baseline(name, name, "default", Path(name), Outcome(ms, contended=contended))
        for name, ms in (("a", 0.3), ("b", 0.4))
    ]
    assert threads.best_ms_of(run, found) == best_ms


def test_what_was_decided_is_told_with_the_times_that_decided_it() -> None:
    found = OnThreads(1, ((2, 0.53), (1, 0.26)))
    assert found.reason == "Of 2 threads 1 are used: the best baseline takes 0.530 ms on 2, 0.260 ms on 1"


def config_of(folder: Path, **given: Any) -> Any:
    onnx.save(tiny_convnet(), folder / "tiny.onnx")
    own = {**QUICK_ALL_CORES, "model.source": str(folder / "tiny.onnx"), "cache.dir": str(folder / "cache")}
    return parse_config(nested({**own, **given}), (), "test")


needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="this machine has one core")


@needs_two_cores
@pytest.mark.slow
def test_a_run_on_fewer_threads_goes_on_with_them_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "best_ms_of", lambda *_: 0.5)  # whatever disturbs it
    monkeypatch.setattr(threads, "measured_ms", lambda *_: 0.1)
    config, place = config_of(tmp_path, **{"target.threads": 2, "final.speeds": "searched"}), tmp_path / "run"
    place.mkdir()
    save_run(place, config, "run")
    (found,) = run_profiles(config, place, LineReporter())
    assert read_artifact(place / "best.collage").target.threads == 1
    told = json.loads((place / "result.json").read_text())
    told = told.get("result", told)
    assert (told["target"]["threads"], told["target"]["allowed_threads"]) == (1, 2)
    assert any("Of 2 threads 1 are used" in note for note in found.result.notes)
    assert settled(config, place).target.threads == 1
    assert ExplainedRun.read(place).config.target.threads == 1
    monkeypatch.setattr(threads, "measured_ms", lambda *_: pytest.fail("it was decided"))
    with open_records(config, place, LineReporter()) as records:
        assert records[RunContext].target.threads == 1


@needs_two_cores
@pytest.mark.parametrize(
    "given", [{"policy.threads_short_ms": 0}, {"search.objective": "throughput"}], ids=["short", "throughput"]
)
def test_all_threads_are_used_where_a_person_says_so(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "best_ms_of", lambda *_: 0.5)
    monkeypatch.setattr(threads, "measured_ms", lambda *_: 0.1)
    config = config_of(tmp_path, **{"target.threads": 2}, **given)
    with open_records(config, tmp_path / "run", LineReporter()) as records:
        assert on_threads_that_pay(records)[RunContext].target.threads == 2
