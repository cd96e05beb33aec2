"""A placement is timed in sample batches that alternate with those of a reference run, in its process or another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from collage_evo.fitness.jobs import Measured, PlacementJob, WholeJob
from collage_evo.fitness.reference_run import (
    FEWEST_PAIRS,
    LEAST_PAIRS,
    NEAR_ERROR,
    NEAR_PAIRS,
    ReferenceProcess,
    ReferenceRunEnded,
    time_against,
    warm_up,
)
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.timing import BATCH_RUNS, batch_of
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Region
from collage_evo.pruning import LOST_PAIR
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimingSettings, measure
from tests.fitness.helpers import LONG_S, TIMING, make_setting

SETTINGS = TimingSettings(warmup=2, min_runs=12, min_seconds=1.0, max_seconds=60.0)


class Machine:
    """Its clock moves by what runs, which takes longer and longer."""

    def __init__(self, drift: float) -> None:
        self.seconds, self.slower, self.drift = 0.0, 1.0, drift
        self.spread, self.random = 0.0, Random(0)
        self.runs: dict[str, int] = {}

    def clock(self) -> float:
        return self.seconds

    def loaded(self, name: str, ms: float) -> Session:
        def execute() -> None:
            self.slower *= self.drift
            self.seconds += self.slower * ms / 1e3 * math.exp(self.random.gauss(0.0, self.spread))
            self.runs[name] = self.runs.get(name, 0) + 1

        session: Any = SimpleNamespace(execute=execute)
        return session


def timed(machine: Machine, ms: float, **bounds: Any) -> tuple[float, ...]:
    loaded = machine.loaded("anchor", 5.0)
    anchor: Any = SimpleNamespace(
        used_s=0.0, sample_batch=lambda: batch_of(measure(loaded.execute, BATCH_RUNS, clock=machine.clock))
    )
    return time_against(anchor, 7.0, machine.loaded("tried", ms), SETTINGS, **bounds, clock=machine.clock).times_ms


def test_a_latency_is_a_multiple_of_the_anchors_however_the_machine_drifts() -> None:
    steady, drifting = timed(Machine(1.0), 10.0), timed(Machine(1.01), 10.0)
    assert steady == pytest.approx([14.0] * len(steady))
    assert len(steady) * 2 >= SETTINGS.min_runs
    assert sum(map(math.log, drifting)) / len(drifting) == pytest.approx(math.log(14.0), abs=0.02)


def test_what_is_behind_has_one_pair_of_bursts_or_few() -> None:
    assert len(timed(Machine(1.0), 10.0, best_ms=10.0)) == 1
    assert len(timed(Machine(1.0), 10.0, give_up_ms=10.0)) == 1
    assert len(timed(Machine(1.0), 10.0, give_up_ms=14.0 / (0.99 * LOST_PAIR.number))) > 1
    assert len(timed(Machine(1.0), 10.0, best_ms=13.0)) == LEAST_PAIRS
    assert len(timed(Machine(1.0), 10.0, best_ms=14.1)) == NEAR_PAIRS


def test_what_takes_long_has_two_pairs_and_is_warm_after_a_run() -> None:
    clock = Machine(1.0)
    assert len(timed(clock, 2000.0)) == FEWEST_PAIRS == 2
    warm_up(clock.loaded("long", 600.0), 4, clock=clock.clock)
    assert clock.runs["long"] == 1


def test_what_spreads_is_timed_until_it_is_known() -> None:
    def pairs(spread: float, **bounds: float) -> tuple[float, ...]:
        made = Machine(1.0)
        made.spread = spread
        return timed(made, 10.0, **bounds)

    calm, wild, behind = pairs(0.005), pairs(0.1), pairs(0.1, best_ms=11.0)
    assert len(calm) < len(wild)
    assert np.median(wild) == pytest.approx(14.0, rel=5 * NEAR_ERROR)
    assert len(behind) < len(wild)


def test_what_takes_far_too_long_is_not_warmed_up() -> None:
    clock = Machine(1.0)
    for name, ms in (("slow", 400.0), ("quick", 10.0)):
        warm_up(clock.loaded(name, ms), 2, give_up_ms=10.0, clock=clock.clock)
    assert clock.runs == {"slow": 1, "quick": 2}


REGIONS = tuple(Region(nodes, "onnxruntime") for nodes in (1, 2))


@pytest.fixture(params=[1, 2])
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Sandbox, PlacementJob]]:
    """A measuring process for one thread or two, and a placement that it has timed against an anchor."""
    setting = replace(make_setting(tmp_path), target=Target(threads=request.param))
    artifact = str(tmp_path / "whole.collage")
    with Sandbox(setting, (), 2**30) as sandbox:
        assert isinstance(sandbox.call(WholeJob("onnxruntime", "default", artifact, TIMING), LONG_S), Measured)
        job = PlacementJob(REGIONS, TIMING, 1e9, reference_run=artifact, reference_run_ms=5.0)
        assert isinstance(sandbox.call(job, LONG_S), Measured)
        yield sandbox, job


def anchors(sandbox: Sandbox) -> list[psutil.Process]:
    started = psutil.Process(sandbox.start().pid).children()
    return [process for process in started if "collage_evo.fitness.reference_run" in process.cmdline()]


def test_the_anchor_has_a_process_of_its_own_on_several_threads(measured: tuple[Sandbox, PlacementJob]) -> None:
    sandbox, job = measured
    processes = anchors(sandbox)
    assert len(processes) == int(sandbox._setting.target.threads > 1)
    for process in processes:
        process.kill()
    assert isinstance(sandbox.call(job, LONG_S), Measured), "no fault of what is timed"
    processes = anchors(sandbox)
    sandbox.close()
    psutil.wait_procs(processes, timeout=LONG_S)
    assert not any(process.is_running() for process in processes)


def test_an_anchor_that_cannot_be_loaded_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ReferenceRunEnded, match="exit code 1"):
        ReferenceProcess(tmp_path / "none.collage", tmp_path / "none.npz", ())
    assert "none.collage" in capfd.readouterr().err
