"""Threads beside each other: what one does wrong is told, and who keeps Python's lock to itself is found out."""

import sys
import threading
import time

import pytest

from collage_evo.testing.side_by_side import shared_time, together


def spin() -> None:
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass


def test_a_call_that_lets_go_of_the_lock_is_told_from_one_that_does_not() -> None:
    assert shared_time(lambda: time.sleep(0.02)) >= 0.5
    assert shared_time(spin, most_calls=5) == 0.0


def test_runs_are_at_the_same_time_and_the_first_fault_is_told() -> None:
    seen: list[str] = []

    def one() -> str:
        seen.append("one")
        while len(seen) < 2:
            time.sleep(0.001)
        return ""

    def other() -> str:
        seen.append("other")
        while len(seen) < 2:
            time.sleep(0.001)
        raise KeyError("gone")

    assert together([one, one]) == ""
    seen.clear()
    assert together([one, other]) == "raised KeyError: 'gone'"


def test_a_call_that_raises_leaves_no_thread_behind() -> None:
    def fail() -> None:
        raise KeyError("gone")

    before, switched = threading.active_count(), sys.getswitchinterval()
    with pytest.raises(KeyError):
        shared_time(fail)
    assert (threading.active_count(), sys.getswitchinterval()) == (before, switched)
