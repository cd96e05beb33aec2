"""Who prepares may have company, who times has none, and nobody is taken for hung while it waits."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from collage_evo.codec import to_json
from collage_evo.fitness import exclusive
from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.fitness.fork_server import WorkerProcess, start_worker
from collage_evo.fitness.jobs import (
    Inherits,
    Job,
    Measured,
    Message,
    Opened,
    OpenJob,
    PlacementJob,
    ProfileJob,
    TimeJob,
    TraceJob,
    Waits,
    WholeJob,
)
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.presence import Doing, Presence, present
from collage_evo.hardware.private import SHARED, machine_directory
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import LONG_S, answered, cost_job, make_setting, until
from tests.support.typed import not_none


class Person(threading.Thread):
    """Prepares until it is told to time, times until it is told to end; notes how far it came, and that it waits."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.waits = threading.Event()
        self.timing = ExclusiveTiming(directory, self.waits.set, sign_s=0.0)
        self.prepares, self.times, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.may_time, self.may_end = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self.timing.job():
            self.prepares.set()
            self.may_time.wait()
            self.timing.acquire_exclusive()
            self.times.set()
            self.may_end.wait()
        self.ended.set()

    def is_kept_waiting(self, done: threading.Event) -> bool:
        """Whether it says, from now on, that it waits rather than come to what sets ``done``."""
        self.waits.clear()
        until(lambda: self.waits.is_set() or done.is_set())
        return not done.is_set()


def test_all_prepare_side_by_side_and_time_one_after_the_other(tmp_path: Path) -> None:
    people = [Person(tmp_path) for _ in range(3)]
    assert all(person.prepares.wait(LONG_S) for person in people)
    for person in people[:2]:
        person.may_time.set()
    assert all(person.is_kept_waiting(person.times) for person in people[:2]), "the third prepares"
    people[2].may_time.set()
    while people:
        until(lambda: any(person.times.is_set() for person in people))
        (timing,) = (person for person in people if person.times.is_set())
        people.remove(timing)
        assert all(person.is_kept_waiting(person.times) for person in people)
        timing.may_end.set()
        assert timing.ended.wait(LONG_S)


def test_nobody_begins_while_somebody_waits_to_time(tmp_path: Path) -> None:
    slow, eager = Person(tmp_path), Person(tmp_path)
    assert slow.prepares.wait(LONG_S)
    assert eager.prepares.wait(LONG_S)
    eager.may_time.set()
    assert eager.is_kept_waiting(eager.times)
    late = Person(tmp_path)
    assert late.is_kept_waiting(late.prepares)
    slow.may_time.set()
    slow.may_end.set()
    eager.may_end.set()
    assert eager.ended.wait(LONG_S)
    assert slow.ended.wait(LONG_S)
    assert late.prepares.wait(LONG_S)
    late.may_time.set()
    late.may_end.set()
    assert late.ended.wait(LONG_S)


def test_a_process_that_dies_leaves_nothing_locked(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from collage_evo.fitness.exclusive import ExclusiveTiming\n"
        "q = ExclusiveTiming(pathlib.Path(sys.argv[1]))\n"
        "with q.job():\n    q.acquire_exclusive(); print('alone', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert not_none(other.stdout).readline() == "alone\n"
        waiting = Person(tmp_path)
        kept = waiting.is_kept_waiting(waiting.prepares)
        other.send_signal(signal.SIGKILL)
    assert kept
    assert waiting.prepares.wait(LONG_S)
    waiting.may_time.set()
    waiting.may_end.set()
    assert waiting.ended.wait(LONG_S)


def test_who_waits_says_so(tmp_path: Path) -> None:
    first = Person(tmp_path)
    first.may_time.set()
    assert first.times.wait(LONG_S)
    began, signs = time.monotonic(), list[float]()

    def said() -> None:
        signs.append(time.monotonic())
        if len(signs) == 3:
            first.may_end.set()

    with ExclusiveTiming(tmp_path, said, sign_s=0.02).job():
        assert first.may_end.is_set()
    assert signs[2] - began >= 3 * 0.02, "not each time that it looks"


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else takes part."""
    monkeypatch.setenv(SHARED, str(tmp_path))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        assert sandbox.call(cost_job(3), LONG_S).times_ms
        yield sandbox


def test_every_job_that_times_waits_until_nobody_prepares(sandbox: Sandbox, tmp_path: Path) -> None:
    timing, artifact = TimingSettings(1, 3, 0.001, 5.0), str(tmp_path / "whole.collage")
    regions = tuple(Region(nodes, "onnxruntime") for nodes in (1, 2))
    whole = WholeJob("onnxruntime", "default", artifact, timing)
    assert sandbox.call(whole, LONG_S).times_ms
    assert isinstance(sandbox.call(OpenJob(artifact), LONG_S), Opened)
    jobs: list[Job] = [TimeJob(timing), ProfileJob(3), TraceJob(artifact, 1), cost_job(3)]
    jobs += [PlacementJob(regions, timing, 1e9), whole]
    for job in jobs:
        other = Person(machine_directory())
        assert other.prepares.wait(LONG_S)
        other.may_end.set()
        threading.Thread(target=let_time_who_is_waited_for, args=(other,), daemon=True).start()
        assert not isinstance(sandbox.call(job, LONG_S), Failure)
        assert other.may_time.is_set(), job
        other.join(LONG_S)


def let_time_who_is_waited_for(person: Person) -> None:
    until(lambda: Doing.WANTS_TURN in {note.doing for note in present(machine_directory())})
    person.may_time.set()


class Heard(list[str]):
    """The lines of a file, once they were read."""

    def __init__(self, source: IO[str]) -> None:
        super().__init__()
        self.source, self.close = source, source.close

    def __iter__(self) -> Iterator[str]:
        for line in self.source:
            self.append(line)
            yield line


def test_a_measuring_process_says_that_it_waits_its_turn(tmp_path: Path) -> None:
    heard: Any = None

    def start(*arguments: Any) -> WorkerProcess:
        nonlocal heard
        process = start_worker(*arguments)
        heard = process.stdout = Heard(process.stdout)  # type: ignore[assignment]
        return process

    with Sandbox(make_setting(tmp_path), (), 2**30, start) as sandbox:
        assert isinstance(sandbox.call(cost_job(3), LONG_S), Measured)
        heard.clear()
        other = Person(machine_directory())
        other.may_time.set()
        assert other.times.wait(LONG_S)
        threading.Timer(1.5, other.may_end.set).start()
        assert isinstance(sandbox.call(cost_job(3), LONG_S), Measured)
    assert f"{to_json(Waits(), Message)}\n" in heard


DONE = Measured((1.0,), 0.0, 0.0)


@pytest.mark.parametrize(("message", "right"), [(Waits(), True), (Inherits("key"), False)])
def test_a_measuring_process_that_waits_its_turn_does_not_hang(message: Message, right: bool) -> None:
    now, ended = [0.0], threading.Event()

    def lines() -> Iterator[str]:
        for _ in range(3):
            now[0] += 50.0
            yield f"{to_json(message, Message)}\n"
            time.sleep(0.3)  # a look
        if not right:
            ended.wait(LONG_S)
        yield f"{to_json(DONE, Message)}\n"

    found = answered(os.getpid(), lambda: now[0], lines())
    ended.set()
    assert found == DONE if right else isinstance(found, Failure) and found.fault is Fault.HANG


def test_time_for_which_a_job_is_halted_is_none_of_its_own() -> None:
    # A look is at its beginning, once no message has come, and at what is left.
    clock = itertools.accumulate(itertools.chain((0.0,), itertools.cycle((0.0, 100.0, 0.0))))
    other = Presence(machine_directory(), "another")
    other.note(Doing.TIMES)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_halted(process))

        def lines() -> Iterator[str]:
            time.sleep(1.0)
            yield f"{to_json(DONE, Message)}\n"

        found = answered(process.pid, lambda: next(clock), lines())
        process.kill()
    assert found == DONE
    other.close()


BUSY = """
import sys, time
from pathlib import Path
from collage_evo.fitness.exclusive import ExclusiveTiming
timing = ExclusiveTiming(Path(sys.argv[2]))
with timing.compiling() if sys.argv[3] == "compiles" else timing.job():
    if sys.argv[3] != "compiles":
        timing.acquire_exclusive()
    if sys.argv[3] == "judges":
        timing.release()
    while True:
        print(end="x", flush=True)
        time.sleep(0.001)
"""


@contextlib.contextmanager
def at_work(directory: Path, what: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that compiles, times, or judges what it has timed, and says so all the time."""
    program = [sys.executable, "-c", BUSY, "collage_evo.fitness.process", str(directory), what]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert not_none(process.stdout).read(1) == b"x"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["compiles", "judges"])
def busy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process that may be halted."""
    with at_work(tmp_path, request.param) as process:
        yield process


def is_halted(process: subprocess.Popen[Any]) -> bool:
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def test_who_compiles_or_judges_is_halted_while_somebody_times_and_waited_for_by_nobody(
    tmp_path: Path, busy: subprocess.Popen[bytes]
) -> None:
    timing = ExclusiveTiming(tmp_path)
    for over in (True, False):
        with timing.job():
            assert not is_halted(busy)
            timing.acquire_exclusive()
            until(lambda: is_halted(busy))
            if over:
                timing.release()
                until(lambda: not is_halted(busy))
        until(lambda: not is_halted(busy))


def test_nobody_begins_to_compile_while_somebody_times(tmp_path: Path) -> None:
    person, begun = Person(tmp_path), threading.Event()
    person.may_time.set()
    assert person.times.wait(LONG_S)

    def compile_something() -> None:
        with ExclusiveTiming(tmp_path).compiling():
            begun.set()

    threading.Thread(target=compile_something, daemon=True).start()
    until(lambda: Doing.COMPILES in {note.doing for note in present(tmp_path)})
    assert not begun.is_set()
    person.may_end.set()
    assert begun.wait(LONG_S)


def test_who_was_halted_goes_on_when_who_timed_is_gone(tmp_path: Path, busy: subprocess.Popen[bytes]) -> None:
    os.killpg(busy.pid, signal.SIGSTOP)
    until(lambda: is_halted(busy))
    exclusive.go_on(tmp_path)
    until(lambda: not is_halted(busy))


def test_who_was_halted_stays_so_while_another_times(tmp_path: Path, busy: subprocess.Popen[bytes]) -> None:
    with at_work(tmp_path, "times"):
        until(lambda: is_halted(busy))
        exclusive.go_on(tmp_path)
        assert is_halted(busy)
    exclusive.go_on(tmp_path)
    until(lambda: not is_halted(busy))


STARTS = """
import os, signal, sys, time
from pathlib import Path
from collage_evo.fitness.sandbox import Sandbox
from tests.fitness.helpers import make_setting
pid = Sandbox(make_setting(Path(sys.argv[1])), (), 2**30).start().pid
os.killpg(pid, signal.SIGSTOP)
print(pid, flush=True)
time.sleep(600)
"""


def test_nobody_stays_halted_whose_run_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], stdout=subprocess.PIPE) as run:
        halted = psutil.Process(int(not_none(run.stdout).readline()))
        until(lambda: halted.status() == psutil.STATUS_STOPPED)
        run.kill()
    until(lambda: not halted.is_running() or halted.status() == psutil.STATUS_ZOMBIE)


def test_who_was_halted_by_another_run_goes_on_when_that_is_gone(sandbox: Sandbox, tmp_path: Path) -> None:
    person = Person(machine_directory())
    person.may_time.set()
    assert person.times.wait(LONG_S)
    process = sandbox.start()
    os.killpg(process.pid, signal.SIGSTOP)
    answers: list[Measured | Failure] = []
    done = threading.Thread(target=lambda: answers.append(sandbox.call(cost_job(3), LONG_S)), daemon=True)
    done.start()
    done.join(1.0)
    assert is_halted(process), "somebody times"
    person.may_end.set()  # it lets those go on that it halted, and knows nothing of this one
    done.join()
    assert not isinstance(answers[0], Failure)
