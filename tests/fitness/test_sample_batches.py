"""A burst is a few runs in a row; artifacts that are open in one process take turns in it, and are loaded anew."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.fitness.jobs import Measured, Opened, OpenJob, ReloadJob, SampleBatches, SampleBatchesJob, WholeJob
from collage_evo.fitness.open_artifact import BLOCKS, LARGEST, SMALLEST, ballast
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.timing import BATCH_RUNS, log_ratio, sample_batch
from collage_evo.genome.failure import Failure
from collage_evo.runtime.timing import Timing, TimingSettings, measure
from tests.fitness.helpers import make_setting


class Paced:
    """Stands in for what is at work: each run takes ``ms`` on a clock of its own."""

    def __init__(self, ms: float) -> None:
        self.ms, self.now = ms, 0.0

    def measure(self, settings: TimingSettings) -> Timing:
        def run() -> None:
            self.now += self.ms / 1e3

        return measure(run, settings, clock=cast(Callable[[], float], lambda: self.now))


@pytest.mark.parametrize(("ms", "runs"), [(0.1, 67), (1.0, 7), (8.0, 2), (40.0, 2), (300.0, 1)])
def test_a_burst_is_three_runs_or_10_ms_without_its_first_third_and_one_run_of_a_large_model(
    ms: float, runs: int
) -> None:
    taken = sample_batch(cast(Any, Paced(ms)))
    assert len(taken) == pytest.approx(runs, abs=1)
    assert taken == pytest.approx([ms] * len(taken))
    assert BATCH_RUNS.warmup == 0


def test_a_ratio_is_the_median_over_neighbouring_bursts() -> None:
    slow, fast = [(2.0, 9.0, 2.0), (4.0,), (50.0,)], [(1.0,), (2.0,), (2.0, 2.0)]
    assert log_ratio(slow, fast) == pytest.approx(0.6931, abs=1e-4)


def test_ballast_is_another_for_each_seed() -> None:
    sizes = [[len(block) for block in ballast(random.Random(seed))] for seed in (1, 1, 2)]
    assert sizes[0] == sizes[1] != sizes[2]
    assert len(sizes[0]) == BLOCKS
    assert all(SMALLEST <= size <= LARGEST for size in sizes[0])


def test_artifacts_of_one_process_run_in_the_order_asked_for_and_are_loaded_anew(tmp_path: Path) -> None:
    setting, first, second = make_setting(tmp_path), str(tmp_path / "a.collage"), str(tmp_path / "b.collage")
    with Sandbox(setting, (), 2**31) as sandbox:
        whole = WholeJob("onnxruntime", "default", first, TimingSettings(1, 1, 0.0, 5.0))
        assert isinstance(sandbox.call(whole, 60.0), Measured)
        shutil.copytree(first, second)
        for seed in range(2):
            warm = sandbox.call(ReloadJob((first, second), seed), 60.0)
            assert isinstance(warm, SampleBatches)
            assert len(warm.batches) == 2
        taken = sandbox.call(SampleBatchesJob((first, second, second, first)), 60.0)
        assert isinstance(taken, SampleBatches)
        assert len(taken.batches) == 4
        assert all(ms > 0 for sample_batch in taken.batches for ms in sample_batch)
        assert isinstance(sandbox.call(OpenJob(first), 60.0), Opened), "alone again"
        assert isinstance(sandbox.call(SampleBatchesJob((second,)), 60.0), Failure)
