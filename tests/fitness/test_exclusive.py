"""Who prepares may have company, who times has none, and nobody is taken for hung while it waits."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_evo.fitness.failure import Failure
from collage_evo.fitness.measure import exclusive
from collage_evo.fitness.measure.answers import Opened
from collage_evo.fitness.measure.exclusive import ExclusiveTiming
from collage_evo.fitness.measure.jobs import Job, OpenJob, PlacementJob, ProfileJob, TimeJob, WholeJob
from collage_evo.fitness.measure.sandbox import Sandbox
from collage_evo.runtime.timing import TimingSettings
from collage_evo.target.slots import machine_directory
from tests.fitness.helpers import cost_job, make_setting

WHILE = 0.2
"""Long enough for another thread to do what it may, seconds."""


class Person(threading.Thread):
    """Prepares until it is told to time, times until it is told to end; notes how far it came."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.timing = ExclusiveTiming(directory)
        self.prepares, self.times, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.may_time, self.may_end = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self.timing.job():
            self.prepares.set()
            self.may_time.wait(10)
            self.timing.alone()
            self.times.set()
            self.may_end.wait(10)
        self.ended.set()


def test_all_prepare_side_by_side_and_time_one_after_the_other(tmp_path: Path) -> None:
    people = [Person(tmp_path) for _ in range(3)]
    assert all(person.prepares.wait(5) for person in people)
    for person in people[:2]:
        person.may_time.set()
    assert not any(person.times.wait(WHILE) for person in people), "the third prepares"
    people[2].may_time.set()
    for _ in people:
        timing = _wait_for_one(people)
        assert sum(person.times.is_set() and not person.ended.is_set() for person in people) == 1
        timing.may_end.set()
        assert timing.ended.wait(5)


def _wait_for_one(people: list[Person]) -> Person:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for person in people:
            if person.times.is_set() and not person.ended.is_set():
                time.sleep(WHILE)
                return person
    raise AssertionError("nobody times")


def test_nobody_begins_while_somebody_waits_to_time(tmp_path: Path) -> None:
    slow, eager = Person(tmp_path), Person(tmp_path)
    assert slow.prepares.wait(5)
    assert eager.prepares.wait(5)
    eager.may_time.set()
    time.sleep(WHILE)
    late = Person(tmp_path)
    assert not late.prepares.wait(WHILE)
    slow.may_time.set()
    slow.may_end.set()
    eager.may_end.set()
    assert eager.ended.wait(5)
    assert slow.ended.wait(5)
    assert late.prepares.wait(5)
    late.may_time.set()
    late.may_end.set()
    assert late.ended.wait(5)


def test_a_process_that_dies_leaves_nothing_locked(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from collage_evo.fitness.measure.exclusive import ExclusiveTiming\n"
        "q = ExclusiveTiming(pathlib.Path(sys.argv[1]))\n"
        "with q.job():\n    q.alone(); print('alone', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "alone\n"
        waiting = Person(tmp_path)
        assert not waiting.prepares.wait(WHILE)
        other.send_signal(signal.SIGKILL)
    assert waiting.prepares.wait(5)
    waiting.may_time.set()
    waiting.may_end.set()
    assert waiting.ended.wait(5)


def test_who_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive, "SIGN_S", 0.02)
    first = Person(tmp_path)
    assert first.prepares.wait(5)
    first.may_time.set()
    assert first.times.wait(5)
    threading.Timer(WHILE, first.may_end.set).start()
    signs: list[float] = []
    second = ExclusiveTiming(tmp_path, lambda: signs.append(time.monotonic()))
    with second.job():
        assert first.may_end.is_set()
    assert len(signs) >= 3


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A measuring process with lock files of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        assert sandbox.call(cost_job(3), 60.0).times_ms
        yield sandbox


def test_every_job_that_times_waits_until_nobody_prepares(sandbox: Sandbox, tmp_path: Path) -> None:
    timing, artifact = TimingSettings(1, 3, 0.001, 5.0), str(tmp_path / "whole.collage")
    regions = tuple((nodes, "onnxruntime", "default", "0", "") for nodes in ("1", "2"))
    whole = WholeJob("onnxruntime", "default", artifact, timing)
    assert sandbox.call(whole, 60.0).times_ms
    assert isinstance(sandbox.call(OpenJob(artifact), 60.0), Opened)
    jobs: list[Job] = [TimeJob(timing), ProfileJob(3), cost_job(3), PlacementJob(regions, timing, 1e9), whole]
    for job in jobs:
        other = Person(machine_directory())
        assert other.prepares.wait(5)
        other.may_end.set()
        threading.Timer(5 * WHILE, other.may_time.set).start()
        assert not isinstance(sandbox.call(job, 60.0), Failure)
        assert other.may_time.is_set(), job
        other.join(5)


def test_a_measuring_process_that_waits_its_turn_does_not_hang(sandbox: Sandbox) -> None:
    other = Person(machine_directory())
    other.may_time.set()
    assert other.times.wait(5)
    patience_s = 2.0
    threading.Timer(2 * patience_s, other.may_end.set).start()
    began = time.monotonic()
    assert sandbox.call(cost_job(3), patience_s).times_ms
    assert time.monotonic() - began >= patience_s
