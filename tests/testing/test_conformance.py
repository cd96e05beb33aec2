"""The suite passes a backend that keeps every promise, and finds out each one that breaks one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.errors import UnavailableError
from collage_evo.models.builder import Builder
from collage_evo.testing.conformance import Effort, Suite, check_backend
from collage_evo.testing.finding import CHECKS, Finding, Report, Status
from collage_evo.testing.generated import FAMILIES
from collage_evo.testing.process import where
from collage_evo.testing.pytest_backend import BackendConformance
from collage_evo.testing.randomised import random_findings
from tests.support.faults import install_backend

from . import wrong, wrong_building

pytestmark = pytest.mark.slow

COUNTING = Effort(cases=False, examples=0, per_pattern=1)
QUICK = replace(COUNTING, count_threads=False)


def model():
    b = Builder("model")
    return b.model(b.op("Tanh", b.op("Add", b.input("x", (1, 8, 5)), b.input("y", (1, 8, 5)))))


def check(backend, effort: Effort = QUICK) -> Report:
    return check_backend(backend(), {"mine": model()}, effort)


class TestRight(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls):
        return wrong.Right()

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(examples=1, per_pattern=1)

    def test_every_check_ran(self, report: Report) -> None:
        assert all(report.count(check, "passed") for check in set(CHECKS) - {"capture", "indices", "open"})
        assert report.count("build", "declined") > 100


@pytest.mark.parametrize(
    ("backend", "check_name", "words"),
    [
        (wrong.Numerics, "numerics", "relative error 0.01"),
        (wrong.Repeat, "repeat", "differs"),
        (wrong.Inputs, "inputs", "changed an input"),
        (wrong.ReferenceProcess, "buffers", "beside a buffer"),
        (wrong.Own, "buffers", "not written"),
        (wrong.Unaligned, "buffers", "unaligned"),
        (wrong.Fresh, "fresh", "new inputs"),
        (wrong.Instances, "instances", "two in turns"),
        (wrong.LetGo, "instances", "after another was let go"),
        (wrong.Rebound, "rebound", "bound to other buffers: relative error"),
        (wrong.Together, "together", "beside another thread: relative error"),
        (wrong_building.Reload, "reload", "KeyError"),
        (wrong_building.Stray, "build", "log.txt"),
        (wrong_building.Raises, "errors", "raised RuntimeError"),
        (wrong_building.Claims, "errors", "claims to have built"),
        (wrong_building.Unused, "patterns", "models of your own"),
        (wrong.Crash, "numerics", "killed by SIGABRT in wrong.py:"),
        (wrong.Threads, "threads", "threads worked"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_broken_promise_is_found(backend, check_name: str, words: str) -> None:
    counted = backend in (wrong.Crash, wrong.Threads)
    failures = check(backend, COUNTING if counted else QUICK).failures
    also = {"threads"} if backend is wrong.Crash else set()
    assert {finding.check for finding in failures} == {check_name} | also
    assert all(words in finding.reason for finding in failures)


@pytest.mark.parametrize(
    "backend", [wrong_building.Follows, wrong_building.Checked], ids=lambda backend: backend.__name__
)
def test_indices_that_lead_out_must_not_be_followed_unless_they_are_checked_before(backend) -> None:
    with Suite(backend(), QUICK) as suite:
        found = {finding.case: finding for finding in suite.indices()}
    assert found["gather_nd"].status == "declined"
    followed = backend is wrong_building.Follows
    assert found["gather"].status == ("failed" if followed else "passed")
    assert found["gather"].reason.endswith("gives numbers where ONNX Runtime raises" if followed else "")


@pytest.mark.parametrize(
    ("backend", "status", "reason"),
    [
        (wrong_building.Open, "passed", ""),
        (wrong_building.Compiled, "failed", "of [[3, 9, 512]]: gives other numbers than ONNX Runtime"),
        (wrong_building.Lenient, "failed", "of [[2, 2, 130, 512]]: gives numbers where ONNX Runtime raises"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_open_inputs_are_checked_in_several_shapes(backend, status: Status, reason: str) -> None:
    with Suite(backend(), QUICK) as suite:
        found = {finding.case: finding for finding in suite.open_shapes()}
    assert found["open product [default]"] == Finding("open", "open product [default]", status, reason)


def test_a_backend_for_fixed_shapes_declines_open_inputs() -> None:
    with Suite(wrong.Right(), QUICK) as suite:
        (found,) = suite.open_shapes()
    assert (found.status, found.reason) == ("declined", "it compiles for fixed shapes")


def test_variants_that_load_the_same_files_are_compiled_once() -> None:
    report = check(wrong_building.OnceBuilt)
    assert not report.failures
    passed = [finding.case for finding in report.findings if (finding.check, finding.status) == ("reload", "passed")]
    assert len(passed) == 2 * len([case for case in passed if case.endswith("other]")]) > 0


def test_a_refusal_without_a_reason_is_found() -> None:
    b = Builder("refused")
    refused = b.model(b.op("Erf", b.input("x", (1, 8))))
    failures = check_backend(wrong_building.Silent(), {"mine": model(), "refused": refused}, QUICK).failures
    assert [(finding.check, finding.case) for finding in failures] == [("contract", "refused")]


def test_where_nan_and_infinity_get_lost_is_told_and_no_failure() -> None:
    report = check(wrong.Loses)
    assert not report.failures
    lost = {finding.reason for finding in report.findings if finding.check == "nonfinite" and finding.reason}
    somewhere = "NaN as the first, NaN as the last, nothing but NaN"
    assert lost == {f"NaN, infinity, -infinity, {somewhere} in Add", f"NaN, {somewhere} in Add, Tanh"}


def test_a_crash_is_told_by_the_lines_in_which_the_threads_were() -> None:
    waits = 'Thread 0x1 (most recent call first):\n  File "/lib/threading.py", line 7 in wait\n'
    runs = 'Thread 0x2 (most recent call first):\n  File "/api.py", line 8 in infer\n  File "own.py", line 9 in run\n'
    assert where(waits + runs.replace("Thread", "Current thread")) == " in api.py:8 infer"
    assert where(waits + runs) == " in a thread that runs no Python, others in api.py:8 infer"
    assert not where("")


def test_a_hang_is_ended() -> None:
    report = check(wrong.Hang, replace(QUICK, per_pattern=0, timeout_s=3.0))
    assert [finding.reason for finding in report.failures if finding.check == "numerics"] == ["hung: nothing for 3 s"]


def test_a_backend_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="no such device"):
        check(wrong_building.Absent)


def test_random_models_are_the_same_each_time_and_a_failing_one_is_made_small() -> None:
    def names(check) -> list[str]:
        return [finding.case for finding in random_findings(check, 2)]

    def passes(name, make):
        return [finding_of(name, "passed")]

    def fails_on_relu(name, make):
        return [finding_of(name, "failed" if "Relu(" in name else "passed")]

    assert names(passes) == names(passes)
    assert len(names(passes)) == 2 * len(FAMILIES)
    small = [f.case for f in random_findings(fails_on_relu, 30) if f.status == "failed" and "wiring" in f.case]
    assert small
    assert small[0].count("(") <= 3


def finding_of(name: str, status: Status) -> Finding:
    return Finding("numerics", name, status)


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collage_evo", "conformance", "right", "--examples", "0"]
    environment = {**os.environ, **install_backend(tmp_path, wrong.Right)}
    environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])  # for wrong.py itself
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for name in CHECKS:
        assert name in done.stdout
