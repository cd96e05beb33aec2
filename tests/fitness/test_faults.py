"""What a backend can do wrong takes down neither a measurement nor a search, and is named."""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import pytest

from collage_evo.codec import to_json
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import CostJob, Job, Measured, Message, PlacementJob
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.worker import failure_of
from collage_evo.genome.failure import Failure, Fault
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import answered, cost_job, make_setting
from tests.support.faults import install_faulty
from tests.support.models import chain
from tests.support.quick import QUICK, options
from tests.support.typed import not_none

TIMING = TimingSettings(1, 5, 0.001, max_seconds=5.0)
EXPECTED = {
    "crash": "crash: killed by SIGSEGV",
    "abort": "crash: killed by SIGABRT",
    "exit": "crash: exit code 0",
    "hang": "hung: no answer within 1 s",
    "leak": "memory: used more than 0.8 GiB",
    "raise": "raised: RuntimeError: raised on purpose",
    "nan": "not finite: outputs",
    "wrong": "wrong numbers: relative error",
    "overwrite": "overwritten input: x",
    "unbuildable": "build: faulty: cannot be built, on purpose",
    "crash-building": "crash: killed by SIGSEGV",
    "hang-building": "hung: no answer within 1 s",
    "unloadable": "raised: RuntimeError: cannot be loaded, on purpose",
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A measuring process that knows the faulty backend; its model is a single convolution and its Relu."""
    folder = tmp_path_factory.mktemp("faults")
    setting = make_setting(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in install_faulty(folder).items():
            patch.setenv(name, value)
        with Sandbox(setting, (), int(0.8 * 2**30)) as sandbox:
            yield sandbox


def alone(variant: str) -> Job:
    return CostJob(Region(1, "faulty", variant), TIMING, give_up_ms=1e9, flush=False)


def inside(variant: str) -> Job:
    regions = (Region(1, "faulty", variant), Region(2, "onnxruntime", "default"))
    return PlacementJob(regions, TIMING, give_up_ms=1e9)


def call(sandbox: Sandbox, job: Job) -> Measured | Failure:
    return sandbox.call(job, 1.0 if "hang" in repr(job) else 60.0)


# In a placement, one of each way to go wrong: a process that ends, numbers, an input, no piece.
@pytest.mark.parametrize(
    ("kind", "variant"),
    [*((alone, variant) for variant in EXPECTED),
     *((inside, variant) for variant in ("crash", "nan", "overwrite", "unbuildable"))],
)  # fmt: skip
def test_each_fault_is_a_reason_and_the_next_job_is_done(sandbox: Sandbox, kind: type, variant: str) -> None:
    answer = call(sandbox, kind(variant))
    assert isinstance(answer, Failure)
    assert EXPECTED[variant] in str(answer)
    assert call(sandbox, cost_job(5)).times_ms


@pytest.mark.parametrize(("variant", "reason"), [("crash-late", "SIGSEGV"), ("wrong-late", "relative error")])
def test_what_goes_wrong_only_after_many_runs_does_not_count(sandbox: Sandbox, variant: str, reason: str) -> None:
    assert call(sandbox, alone(variant)).times_ms
    long = TimingSettings(1, 6000, 0.001, max_seconds=60.0)
    answer = call(sandbox, PlacementJob(inside(variant).regions, long, 1e9))
    assert isinstance(answer, Failure)
    assert reason in str(answer)


def test_a_full_disk_is_nobodys_fault_and_ends_the_run() -> None:
    full = failure_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "cache/pieces/1"))
    assert full.fault.passing, "no other run may believe it"
    with pytest.raises(InputError, match="cache/pieces/1: No space left on device; make room"):
        answered(os.getpid(), time.monotonic, iter([f"{to_json(full, Message)}\n"]))


def _temporary_of(sandbox: Sandbox) -> Path:
    """Its directory for temporary files, in which it has left something."""
    place = Path(sandbox._started().scratch.name)
    (place / "unpacked").mkdir()
    return place


def test_threads_that_close_a_sandbox_at_once_while_another_calls_leave_no_process(tmp_path: Path) -> None:
    for pause_s in (0.0, 0.05, 0.2, 1.0):
        sandbox = Sandbox(make_setting(tmp_path), (), 2**31)
        process = sandbox.start()
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(sandbox.call, cost_job(1), 60.0)
            time.sleep(pause_s)
            closed = [threads.submit(sandbox.close) for _ in range(8)]
            assert [one.result(60.0) for one in closed] == [None] * 8
            found = answer.result(60.0)
        assert isinstance(found, Measured) or found.fault is Fault.CLOSED
        assert process.poll() is not None
        again = sandbox.call(cost_job(1), 60.0)
        assert isinstance(again, Failure)
        assert again.fault is Fault.CLOSED, "nothing starts again"


def test_a_measuring_process_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("statistics.py", "numpy.py", "random.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the working directory')")
    (tmp_path / "work").mkdir()
    setting = make_setting(tmp_path / "work")
    monkeypatch.chdir(tmp_path)
    with Sandbox(setting, (), 2**31) as sandbox:
        assert isinstance(sandbox.call(cost_job(1), 60.0), Measured)


def test_what_a_killed_process_left_in_its_temporary_directory_is_removed(tmp_path: Path) -> None:
    with Sandbox(make_setting(tmp_path), (), 2**31) as sandbox:
        first = sandbox.start()
        left = _temporary_of(sandbox)
        first.kill()
        first.wait()
        assert not isinstance(sandbox.call(cost_job(1), 60.0), Failure), "another takes its place"
        assert not left.exists()
        left = _temporary_of(sandbox)
    assert not left.exists()


@pytest.mark.parametrize(
    "at_work", ["sandbox.start()", "sandbox.call(cost_job(1), 60.0)"], ids=["starting", "waiting for a job"]
)
def test_nor_does_anything_stay_of_a_run_that_was_killed(tmp_path: Path, at_work: str) -> None:
    program = f"""
import time
from pathlib import Path
from tests.fitness.helpers import cost_job, make_setting
from tests.fitness.test_faults import _temporary_of
from collage_evo.fitness.sandbox import Sandbox
sandbox = Sandbox(make_setting(Path({str(tmp_path)!r})), (), 2**31)
{at_work}
print(_temporary_of(sandbox), flush=True)
time.sleep(600)
"""
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    left = Path(not_none(run.stdout).readline().strip())
    assert left.is_dir()
    run.kill()
    run.communicate()
    until = time.monotonic() + 240
    while left.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_beside_a_faulty_backend_ends_and_names_its_faults(tmp_path: Path) -> None:
    onnx.save(chain(1), tmp_path / "tiny.onnx")
    settings = {
        **QUICK, "backends.use": ["onnxruntime", "faulty"], "fitness.timeout_s": 2, "fitness.memory_gb": 0.8,
        "fitness.timing": {}, "costs.seconds": 120, "search.evaluations": 6, "search.seconds": 90,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", "--out", "run", *options(settings)],
        cwd=tmp_path, env={**os.environ, **install_faulty(tmp_path / "plugin")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    refused = result["cost_model"]["refused"]
    # What hangs may be given up before it is said to hang, and so may be what a busy machine keeps from its work, or
    # has no time for.
    late, named = {"far behind", "hung"}, 0
    for variant, reason in EXPECTED.items():
        kinds = set(refused.get(f"faulty/{variant}", ()))
        assert kinds <= {reason.split(":")[0], *late}, (variant, kinds)
        named += not kinds <= late
    assert named >= 3, refused
    for variant in ("slow", "native"):
        assert set(refused.get(f"faulty/{variant}", ())) <= late
    reasons = " ".join(b["reason"] for b in result["baselines"])
    assert "crashed over it" in reasons
    assert "SIGSEGV" in reasons
    assert result["numerics"]["max_relative_error"] < 1e-3
