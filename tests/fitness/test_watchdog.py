"""A run that takes far too long ends its process, and is far behind rather than a crash."""

import math
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.timing import LEAST_S, timeout_s, watchdog
from collage_evo.genome.failure import Failure, Fault
from collage_evo.pruning import SLOW_MATCH
from tests.fitness.helpers import cost_job, make_setting

PROGRAM = """
import signal, time
from collage_evo.fitness.timing import watchdog
with watchdog(600.0):
    print(0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600, flush=True)
print(signal.getitimer(signal.ITIMER_REAL)[0], flush=True)
with watchdog(0.1):
    time.sleep(600)
"""


def test_a_process_is_ended_only_while_it_is_in_the_context() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGALRM, "True\n0.0\n"), done.stderr


def test_patience_grows_with_what_is_too_slow_and_has_no_end_where_nothing_is() -> None:
    assert timeout_s(1.0) == LEAST_S
    assert LEAST_S < timeout_s(LEAST_S * 1e3) < math.inf
    before = signal.getitimer(signal.ITIMER_REAL)
    with watchdog(timeout_s(math.inf)):
        assert (signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)) is (before == (0.0, 0.0))


def end_at_work(process: psutil.Process, idle_s: float) -> None:
    """End it once it has spent more processor time than ``idle_s``, in the job that it was given since."""
    while spent_s(process) < idle_s + 0.1:
        time.sleep(0.01)
    process.send_signal(signal.SIGALRM)


def spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def test_who_was_ended_is_far_behind_and_the_next_job_is_done(tmp_path: Path) -> None:
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        assert not isinstance(sandbox.call(cost_job(5), 60.0), Failure)
        process = psutil.Process(sandbox.start().pid)
        killer = threading.Thread(target=end_at_work, args=(process, spent_s(process)), daemon=True)
        killer.start()
        answer = sandbox.call(cost_job(10, min_seconds=30.0), 60.0)
        killer.join()
        assert isinstance(answer, Failure)
        assert (answer.fault, answer.rule) == (Fault.FAR_BEHIND, SLOW_MATCH.name)
        assert not isinstance(sandbox.call(cost_job(5), 60.0), Failure)
