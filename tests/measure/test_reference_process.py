"""On several threads the anchor runs in a process of its own, which comes and goes with who times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from collage_evo.measure.jobs import Measured, PlacementJob, WholeJob
from collage_evo.measure.reference_run import ReferenceProcess, ReferenceRunEnded
from collage_evo.measure.sandbox import Sandbox
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from collage_evo.target.target import Target
from tests.measure.helpers import make_setting

TIMING = TimingSettings(1, 3, 0.001, 5.0)
REGIONS = tuple(Region(nodes, "onnxruntime") for nodes in (1, 2))
LONG_S = 60.0


@pytest.fixture(params=[1, 2])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Sandbox, PlacementJob]]:
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
    return [process for process in started if "collage_evo.measure.reference_run" in process.cmdline()]


def test_the_anchor_has_a_process_of_its_own_on_several_threads(timed: tuple[Sandbox, PlacementJob]) -> None:
    sandbox, job = timed
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
