"""TVM's tuning: what is on record is kept, counted, and never tried again; a kill costs one trial at most."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Backend, BuildFailure, Built, Target
from collage_evo.backends.tuning import Kernel
from collage_evo.backends.tvm.backend import TvmBackend
from collage_evo.backends.tvm.records import RECORDS, WORKLOADS, freeze_best, locked, read_kernels, write_pending
from collage_evo.errors import DamagedFile
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo.testing.cases.case import weight
from tests.backends.pieces import borders

KILLED = """
import sys, onnx
from pathlib import Path
from collage_evo.backends.base import Target
from collage_evo.backends.tvm.tune import TvmTuner
TvmTuner().tune(onnx.load(sys.argv[1]), Target(), Path(sys.argv[2]), 1000)
"""


def convolution() -> onnx.ModelProto:
    """A 3x3 convolution, 16 channels of 8x8."""
    b = Builder("convolution")
    return b.model(b.op("Conv", b.input("x", (1, 16, 8, 8)), b.const(weight(16, 16, 3, 3)), pads=[1] * 4))


def write_records(folder: Path, times: dict[str, list[float]]) -> None:
    """Files as MetaSchedule writes them; seconds by key."""
    folder.mkdir(exist_ok=True)
    (folder / WORKLOADS).write_text("".join(json.dumps([key, "module"]) + "\n" for key in times))
    rows = [[k, [["trace", s], [s], {}, []]] for k, seconds in enumerate(times.values()) for s in seconds]
    (folder / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_first_record_is_the_untuned_one(tmp_path: Path) -> None:
    write_records(tmp_path, {"a": [0.003, 0.002, 1e10], "b": [1e10]})
    assert read_kernels(tmp_path) == {"a": Kernel(3, 3.0, 2.0), "b": Kernel(1, math.inf, math.inf)}


def test_a_torn_line_is_cut(tmp_path: Path) -> None:
    write_records(tmp_path, {"a": [0.003, 0.002]})
    whole = (tmp_path / RECORDS).read_text()
    (tmp_path / RECORDS).write_text(whole + '[0, [["tra')
    assert read_kernels(tmp_path)["a"].trials == 2
    with locked(tmp_path):
        assert (tmp_path / RECORDS).read_text() == whole


@pytest.mark.parametrize("line", ["[", "[" * 5000, "[7, []]", "[0]", "null", '[0, [[], "soon"]]'])
def test_records_that_are_none_are_told_by_name(tmp_path: Path, line: str) -> None:
    write_records(tmp_path, {"a": [0.003, 0.002]})
    with (tmp_path / RECORDS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DamagedFile, match=rf"{RECORDS} is damaged .*: delete its folder"):
        read_kernels(tmp_path)


def test_only_what_is_better_is_frozen_and_equal_records_have_equal_names(tmp_path: Path) -> None:
    write_records(tmp_path / "one", {"a": [0.003, 0.002], "b": [0.002, 0.003], "other": [0.9, 0.1]})
    write_records(tmp_path / "two", {"b": [0.002], "a": [0.003, 0.004, 0.002]})
    write_records(tmp_path / "same", {"b": [0.002, 0.003]})
    keys = frozenset("ab")
    one, two = (freeze_best(tmp_path / name, keys, tmp_path / "frozen") for name in ("one", "two"))
    assert one == two != ""
    assert read_kernels(tmp_path / "frozen") == {"a": Kernel(1, 2.0, 2.0)}
    assert freeze_best(tmp_path / "same", keys, tmp_path / "none") == ""


def test_a_trial_that_brought_the_process_down_counts_as_failed(tmp_path: Path) -> None:
    write_records(tmp_path, {"a": [0.003]})
    write_pending(tmp_path / "pending", "a", [["trace"], [1e10], {}, []])
    with locked(tmp_path):
        assert read_kernels(tmp_path)["a"] == Kernel(2, 3.0, 3.0)
    with locked(tmp_path):
        assert read_kernels(tmp_path)["a"].trials == 2


@pytest.mark.skipif(not TvmBackend().probe().available, reason=TvmBackend().probe().reason)
def test_tuning_goes_on_after_a_kill_and_tries_nothing_twice(tmp_path: Path) -> None:
    onnx.save(convolution(), tmp_path / "model.onnx")
    records = tmp_path / "records"
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "model.onnx"), str(records)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        while total(records) < 5:
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    before = total(records)
    backend = TvmBackend()
    tuner = backend.tuner()
    keys = tuner.tune(convolution(), Target(), records, 6)
    lost = total(records) - before - 6
    assert 0 <= lost <= 2  # the trial that was killed, and one more record that was under way
    tried = [json.dumps([row[0], row[1][0]]) for row in map(json.loads, (records / RECORDS).open())]
    assert len(set(tried)) == len(tried)
    assert set(keys) == set(tuner.kernels(records))
    force_better(records)
    target = Target(records=str(tmp_path / "frozen"))
    variant = tuner.freeze(records, frozenset(keys), tmp_path / "frozen" / "tvm")
    require_same_numbers(backend, target, variant, tmp_path)


def total(records: Path) -> int:
    return sum(kernel.trials for kernel in read_kernels(records).values())


def force_better(records: Path) -> None:
    """Make every kernel's last record its best: which one is, the clock must not decide."""
    rows = [json.loads(line) for line in (records / RECORDS).open()]
    last = {row[0]: index for index, row in enumerate(rows)}
    for index, row in enumerate(rows):
        row[1][1] = [1e-9 if last[row[0]] == index else 1.0]
    (records / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def require_same_numbers(backend: Backend, target: Target, variant: str, folder: Path) -> None:
    """The tuned piece of the convolution is another than the untuned one, and computes the same."""
    assert variant.startswith("tuned-")
    (read,), (made,) = borders(convolution())
    x = np.random.default_rng(1).standard_normal(read.shape).astype(np.float32)
    results, code = [], []
    for name in ("default", variant):
        work = folder / f"built-{name}"
        work.mkdir()
        assert isinstance(backend.build(convolution(), target, backend.variant(name), work), Built)
        y = np.empty(made.shape, np.float32)
        backend.load(work, target, backend.variant(name), [read], [made]).bind([x], [y])()
        results.append(y)
        code.append((work / "model.so").read_bytes())
    assert code[0] != code[1]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)
    refused = backend.build(CASES["relu"](), target, backend.variant(variant), folder)
    assert isinstance(refused, BuildFailure)
    assert "on record" in refused.reason
