"""A run that takes far too long ends its process, and is far behind rather than a crash."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.patience import LEAST_S, ended_after, patience_s
from collage_evo.fitness.measure.sandbox import Sandbox
from tests.fitness.helpers import cost_job, make_setting

PROGRAM = """
import time
from collage_evo.fitness.measure.patience import ended_after
with ended_after({seconds}):
    time.sleep({sleep})
time.sleep(0.3)
"""


def ended(seconds: float, sleep: float) -> int:
    program = PROGRAM.format(seconds=seconds, sleep=sleep)
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


def test_a_process_is_ended_only_while_it_is_in_the_context() -> None:
    assert ended(0.1, 60.0) == -signal.SIGALRM
    assert ended(0.2, 0.0) == 0


def test_where_nothing_is_too_slow_nothing_is_ended() -> None:
    before = signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with ended_after(math.inf):
        assert (signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)) is before


def test_a_short_run_has_the_least_patience_and_a_long_one_more() -> None:
    assert patience_s(1.0) == LEAST_S < patience_s(1.0, on_device=True)
    assert LEAST_S < patience_s(LEAST_S * 1e3) < math.inf


def test_who_was_ended_is_far_behind_and_the_next_job_is_done(tmp_path: Path) -> None:
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        assert not isinstance(sandbox.call(cost_job(5), 60.0), Failure)
        pid = sandbox.start().pid
        killer = threading.Timer(0.5, os.kill, (pid, signal.SIGALRM))
        killer.start()
        answer = sandbox.call(cost_job(10, min_seconds=30.0), 60.0)
        killer.join()
        assert isinstance(answer, Failure)
        assert answer.fault is Fault.FAR_BEHIND
        time.sleep(0.1)
        assert not isinstance(sandbox.call(cost_job(5), 60.0), Failure)
