"""A run that is after throughput: what it measures, what it says, how it goes on, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest

import collage_evo
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline, measure_as_it_comes
from collage_evo.answer.race import Race, race
from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches
from collage_evo.commands.compare import compare
from collage_evo.commands.compared import subjects
from collage_evo.commands.pick import pick_answer
from collage_evo.config import parse_config
from collage_evo.costs.kernel_tuning import Tuning
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.errors import ConfigError, InputError, NotSearchable
from collage_evo.fitness.jobs import PlacementJob
from collage_evo.fitness.machine import Machine
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes
from collage_evo.hardware.slots import usable_cores
from collage_evo.patterns.match import Region
from collage_evo.report.comparison import notes
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Speeds
from collage_evo.run.context import RunContext
from collage_evo.run.directory import reopen_run, save_config
from collage_evo.run.evaluate import open_records
from collage_evo.run.machine import Backends, chosen_backends
from collage_evo.run.objectives import Precision
from collage_evo.run.plan import measured_costs, picking
from collage_evo.run.records import Key, Seconds
from collage_evo.run.samples import SHAPES
from collage_evo.run.search import Searched
from collage_evo.run.stages.answer import Answer, answer_speeds
from collage_evo.run.stages.baselines import NormalisedBaselines
from collage_evo.run.stages.mixtures import EarlyMixtures
from collage_evo.run.transferred import Transfer
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.timing import LONG_S, Timing, TimingSettings
from tests.fitness.helpers import answer_here, make_setting
from tests.support.machine import FakeMachine
from tests.support.models import chain
from tests.support.quick import QUICK_ALL_CORES, nested
from tests.support.runs import fake_run
from tests.support.spaces import small_space

FAST = {**QUICK_ALL_CORES, "accuracy.budget": 0.02, "search.objective": "throughput", "search.evaluations": 3}
WHOLE: tuple[Region, ...] = (Region(3, "onnxruntime", "default"),)
"""The model of ``make_setting`` in one piece."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a tiny model and a finished run of it."""
    place = tmp_path_factory.mktemp("throughput")
    onnx.save(chain(1), place / "tiny.onnx")
    config = nested({**FAST, "cache.dir": str(place / "cache")})
    collage_evo.optimize(place / "tiny.onnx", config=config, out=place / "run")
    return place


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


def test_both_speeds_of_the_answer_are_in_the_result(folder: Path) -> None:
    found = result(folder / "run")
    speeds = found["speeds"]
    assert found["objective"] == "throughput"
    assert speeds["sessions"] == len(usable_cores())
    assert speeds["machine_ms"] == found["best"]["median_ms"], "what raced is the machine's time"
    assert speeds["runs_per_second"] == pytest.approx(1e3 / speeds["machine_ms"])
    assert (speeds["latency_ms"] > 0, speeds["reason"]) == (True, "")
    if speeds["sessions"] == 1:
        assert speeds["latency_ms"] == speeds["machine_ms"]
    assert "runs a second" in (folder / "run" / "report.html").read_text()


def test_what_is_measured_again_fills_the_machine_as_it_was_measured_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def race(artifacts: Mapping[str, Path], machine: Machine, *more: object, **pythons: object) -> Race:
        asked.append(machine.sessions)
        return Race({}, {})

    monkeypatch.setattr("collage_evo.commands.compare.race", race)
    (compared,) = subjects(folder / "run", None, None)
    compare(compared, LineReporter(), front=True)
    assert asked == [len(usable_cores())]


@pytest.mark.parametrize("place", ["its run", "elsewhere"])
def test_an_answer_and_libraries_are_compared_by_what_it_was_made_for(
    folder: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def heard(artifacts: Mapping[str, Path], machine: Machine, *more: Any, **pythons: Any) -> Race:
        asked.append(machine.sessions)
        return race(artifacts, machine, *more, **pythons)

    def alone(libraries: Sequence[Backend], work: Path, machine: Machine, *more: Any) -> tuple[Baseline, ...]:
        asked.append(machine.sessions)
        return measure_as_it_comes(libraries, work, machine, *more)

    monkeypatch.setattr("collage_evo.commands.compare.race", heard)
    monkeypatch.setattr("collage_evo.commands.compare.measure_as_it_comes", alone)
    artifact, against = folder / "run", None
    if place == "elsewhere":
        artifact = shutil.copytree(folder / "run" / "best.collage", tmp_path / "moved.collage")
        against = folder / "tiny.onnx"
    (compared,) = subjects(artifact, against, None)
    found = compare(compared, LineReporter(), libraries=("onnxruntime",), seconds=1.0)
    assert asked == [len(usable_cores())] * 2
    assert found.sessions == len(usable_cores())
    assert any("Made for throughput" in note for note in notes(found)) is (found.sessions > 1)


@pytest.mark.parametrize(
    ("final", "ms", "reason"),
    [
        ({"speeds": "searched"}, 3.0, "final.speeds leaves it out"),
        ({}, LONG_S * 1e3, "a run takes long: final.speeds=both times it"),
    ],
)
def test_the_other_speed_is_not_measured_where_nobody_wants_it_or_a_run_is_long(
    final: Mapping[str, str], ms: float, reason: str
) -> None:
    config = parse_config({"model": {"source": "a.onnx"}, "final": final}, (), "here")
    run = replace(fake_run(Path(), FakeMachine(lambda job: None, most_sessions=2)), config=config)
    race = SimpleNamespace(timing=lambda name: Timing((ms, ms)))
    told = answer_speeds(run, cast(Verdict, SimpleNamespace(final=race, answer="a")), cast(Answer, None))
    assert told == Speeds(2, ms, None, None, reason)


def test_an_open_answer_is_timed_in_one_session(tmp_path: Path) -> None:
    run = fake_run(tmp_path, FakeMachine(lambda job: None, most_sessions=2))
    run.store.put(SHAPES, OpenShapes({"x": (Dimension(1, 9, "length"),)}))
    race = SimpleNamespace(timing=lambda name: Timing((3.0,)))
    told = answer_speeds(run, cast(Verdict, SimpleNamespace(final=race, answer="a")), cast(Answer, None))
    assert told == Speeds(2, 3.0, None, None, "inputs of several sizes are timed in one session only")


def test_the_run_is_gone_on_with_as_what_it_is(folder: Path) -> None:
    checkpoint = json.loads((folder / "run" / "checkpoint.json").read_text())
    assert checkpoint["body"]["fingerprint"]["objective"] == "throughput"
    config, reporter = reopen_run(folder / "run"), LineReporter()
    with open_records(config, folder / "run", reporter, plan=picking(skipped=False)) as records:
        assert records[Searched].measured > 0
        assert records[MeasuredCosts].space.cost.sessions == len(usable_cores())
        assert records[RunContext].machine.sessions == len(usable_cores())


def test_a_run_does_not_go_on_with_the_other_objective(folder: Path) -> None:
    other = nested({**FAST, "search.objective": "latency"})
    with pytest.raises(ConfigError, match=r"has search\.objective=throughput, not latency: choose another --out"):
        collage_evo.optimize(folder / "tiny.onnx", config=other, out=folder / "run", resume=True)
    saved = reopen_run(folder / "run")
    try:
        save_config(folder / "run", parse_config(saved.model_dump(mode="json"), ["search.objective=latency"], "test"))
        with pytest.raises(InputError, match="objective was throughput and is now latency; start a new run"):
            pick_answer(folder / "run", "exact", LineReporter())
    finally:
        save_config(folder / "run", saved)


def test_throughput_is_refused_for_a_device() -> None:
    config = parse_config(
        {"model": {"source": "builtin:squeezenet"}}, ["search.objective=throughput", "target.device=cuda"], "test"
    )
    with pytest.raises(ConfigError, match="throughput is of the processor's cores, not of cuda"):
        chosen_backends(config)


def test_sessions_at_once_take_all_the_cores_that_they_fill(tmp_path: Path) -> None:
    setting = make_setting(tmp_path)
    for threads, sessions, slots in ((1, 1, 5), (1, 5, 1), (2, 1, 2), (2, 2, 1)):
        target = replace(setting.target, threads=threads)
        full = PoolConfig(replace(setting, target=target, sessions=sessions), (3, 4, 5, 6, 7), 2**30, 60.0)
        assert len(full.slots) == slots
        assert all(len(cores) == threads * sessions for cores in full.slots)


def test_what_any_of_the_sessions_leaves_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = replace(make_setting(tmp_path), sessions=len(usable_cores()) + 1)
    job = PlacementJob(WHOLE, TimingSettings(1, 3, 0.0, 60.0), give_up_ms=1e9)
    measure = Crowd.measure

    def spoilt(crowd: Crowd, *arguments: Any) -> Timing:
        timing = measure(crowd, *arguments)
        session = crowd.sessions[-1]
        (name,) = session.program.inputs
        session.feed({name: session.read(name) + 1})
        return timing

    assert not isinstance(answer_here(setting, job), Failure)
    monkeypatch.setattr(Crowd, "measure", spoilt)
    failure = answer_here(setting, job)
    assert isinstance(failure, Failure)
    assert "runs)" in failure.message, "seen after the last run"


@pytest.mark.parametrize("seed", range(4))
def test_a_part_costs_so_much_of_the_machine_as_sessions_share_it(seed: int) -> None:
    space = small_space(seed, copies=0.5)
    (cover,) = cheapest_covers(space).covers
    placement = place(cover.matches, space)
    alone = space.predict(placement)
    shared = space.costing(space.cost.for_sessions(4))
    assert shared.predict(placement) == pytest.approx(alone / 4)
    assert shared.cost.for_sessions(4) == shared.cost
    assert replace(space, cost=shared.cost.for_sessions(1)).predict(placement) == pytest.approx(alone)
    assert space.cost.for_sessions(1) == space.cost


@pytest.mark.parametrize("sessions", [1, 64])
def test_what_backends_took_alone_is_of_one_session_whatever_the_machine_could_hold(
    sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With latency as objective nothing shares the machine, however many cores it has."""
    given: list[dict[tuple[str, str], float]] = []

    def gather_costs(*arguments: Any) -> None:
        given.append(arguments[5])
        raise NotSearchable("enough was seen")

    monkeypatch.setattr("collage_evo.run.plan.gather_costs", gather_costs)
    run = fake_run(Path(), FakeMachine(lambda job: None, sessions=sessions, most_sessions=64))
    model: Any = SimpleNamespace(graph=build_graph(chain(1)))
    single = NormalisedBaselines((Baseline("ncnn", "ncnn", "default", Path("a"), Outcome(3.0)),))
    none = Matches((), (), {})
    with pytest.raises(NotSearchable):
        measured_costs(
            run,
            model,
            none,
            Tuning(none, ()),
            Precision(),
            Transfer(None),
            single,
            EarlyMixtures("", ()),
            Backends(()),
            Key("key"),
            Seconds(60.0),
        )
    assert given == [{("ncnn", "default"): 3.0 * sessions}]
