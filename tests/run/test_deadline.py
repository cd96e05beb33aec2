"""The deadline of a run: what it waits for, and what its clock leaves out."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from collage_evo.run.deadline import LEAD_S, RESULT_S, TimeIsOver, deadline, in_time, pause, seconds_left
from collage_evo.runtime.manifest import BEST

AT_ONCE = LEAD_S + 0.1
"""A time that is over after a tenth of a second."""


def pass_time() -> None:
    """Longer than the deadline needs, on a busy machine too."""
    time.sleep(2.0)


def test_a_run_ends_at_its_time(tmp_path: Path) -> None:
    with pytest.raises(TimeIsOver), deadline(AT_ONCE):
        pass_time()
    (tmp_path / BEST).mkdir()
    with pytest.raises(TimeIsOver), deadline(AT_ONCE, directory=tmp_path):
        time.sleep(RESULT_S + 2.0)


def test_a_run_without_an_answer_ends_with_its_first_one_and_a_result(tmp_path: Path) -> None:
    steps = []

    def measure() -> None:
        time.sleep(1.0)
        steps.append("first answer")
        (tmp_path / BEST).mkdir()
        steps.append("result")
        time.sleep(RESULT_S + 2.0)
        steps.append("search")

    with pytest.raises(TimeIsOver), deadline(600.0, spent_s=600.0, directory=tmp_path):
        measure()
    assert steps == ["first answer", "result"]


def test_a_wait_for_another_run_does_not_count() -> None:
    with deadline(AT_ONCE):
        pause(600.0)
        assert seconds_left() > 500.0
        time.sleep(1.0)
    assert seconds_left() == math.inf


def test_work_ends_before_the_time_that_is_kept_for_what_follows() -> None:
    ended = []

    def work() -> bool:
        pass_time()
        ended.append("work")
        return True

    with deadline(600.0):
        assert in_time(work, 600.0) is None
        assert seconds_left() > 500.0, "what follows has its time"
        assert in_time(lambda: round(seconds_left(), -2), 90.0) == 500.0
        assert in_time(work, 60.0)
    assert in_time(work, math.inf), "nothing ends it without a deadline"
    assert ended == ["work", "work"]


def test_a_part_ends_with_what_it_is_a_part_of() -> None:
    ended = []

    def work() -> None:
        in_time(pass_time, 700.0)
        ended.append("what follows the part")

    with deadline(600.0):
        in_time(work, 600.0)
    assert not ended


def test_the_deadline_also_ends_what_follows() -> None:
    def work() -> None:
        assert in_time(lambda: True, 0.5)
        pass_time()

    with pytest.raises(TimeIsOver), deadline(AT_ONCE + 1.0):
        work()
