"""What loading and running takes is measured in the process that does it, from before any backend was loaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from collage_evo.fitness.jobs import Measured, Opened, OpenJob, PlacementJob, WholeJob
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import make_setting

BYTES = 50_000_000


PEAKS = """
import numpy as np
from collage_evo.hardware.memory import PeakMemory
held = np.ones(50_000_000, np.uint8)
first = PeakMemory()
before = first.bytes
more = np.ones(50_000_000, np.uint8)
del more
print(before, first.bytes, PeakMemory().bytes, held.all())
"""


def test_the_peak_counts_memory_that_was_given_back_but_none_from_before() -> None:
    # In a process of its own: what other tests free hides as much of the peak, and so do pages that the kernel takes.
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, timeout=240)
    before, peak, after = map(int, done.stdout.split()[:3])
    assert before < BYTES / 2
    assert 0.9 * BYTES < peak < 2 * BYTES
    assert after < BYTES / 2


def test_a_measuring_process_loads_no_backend_before_it_needs_one_and_nothing_that_is_slow_to_read() -> None:
    backends = {"onnxruntime", "openvino", "ncnn", "tvm", "torch", "pydantic"}
    program = f"import collage_evo.fitness.process, sys; print({backends} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "set()", done.stderr


def test_opening_an_artifact_tells_what_it_took(tmp_path: Path) -> None:
    setting, artifact = make_setting(tmp_path), str(tmp_path / "whole.collage")
    with Sandbox(setting, (), 2**31) as sandbox:
        whole = WholeJob("onnxruntime", "default", artifact, TimingSettings(1, 1, 0.0, 5.0))
        assert isinstance(sandbox.call(whole, 60.0), Measured)
    with Sandbox(setting, (), 2**31) as sandbox:
        opened = sandbox.call(OpenJob(artifact), 60.0)
    assert isinstance(opened, Opened)
    assert opened.load_ms > 0
    assert opened.peak_bytes > 2**22, "the single library takes more"


@pytest.mark.parametrize(("reference_bytes", "stays"), [(0, False), (2**40, True)])
def test_a_process_that_has_loaded_the_reference_run_stays_for_the_next_placement(
    tmp_path: Path, reference_bytes: int, stays: bool
) -> None:
    setting = make_setting(tmp_path)
    job = PlacementJob((Region(0b11, "onnxruntime", "default"),), TimingSettings(1, 3, 0.001, 5.0), 1e9)
    with Sandbox(setting, (), 2**31) as sandbox:
        sandbox.call(job, 60.0)
        takes = psutil.Process(sandbox.start().pid).memory_info().rss
    with Sandbox(replace(setting, reference_bytes=reference_bytes), (), 2 * takes) as sandbox:
        first = sandbox.start().pid
        assert isinstance(sandbox.call(job, 60.0), Measured)
        assert (sandbox.start().pid == first) == stays
