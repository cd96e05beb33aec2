"""What loading and running takes is measured in the process that does it, from before any backend was loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from collage_evo.measure.jobs import Measured, Opened, OpenJob, WholeJob
from collage_evo.measure.sandbox import Sandbox
from collage_evo.runtime.timing import TimingSettings
from tests.measure.helpers import make_setting

BYTES = 50_000_000


PEAKS = """
import numpy as np
from collage_evo.target.memory import PeakMemory
held = np.ones(50_000_000, np.uint8)
first = PeakMemory()
before = first.bytes
more = np.ones(50_000_000, np.uint8)
del more
print(before, first.bytes, PeakMemory().bytes, held.all())
"""


def test_the_peak_counts_memory_that_was_given_back_but_none_from_before() -> None:
    # In a process of its own: what other tests free hides as much of the peak, and so do pages that the kernel takes.
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, timeout=60)
    before, peak, after = map(int, done.stdout.split()[:3])
    assert before < BYTES / 2
    assert 0.9 * BYTES < peak < 2 * BYTES
    assert after < BYTES / 2


def test_a_measuring_process_loads_no_backend_before_it_needs_one_and_nothing_that_is_slow_to_read() -> None:
    backends = {"onnxruntime", "openvino", "ncnn", "tvm", "torch", "pydantic"}
    program = f"import collage_evo.measure.process, sys; print({backends} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
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
