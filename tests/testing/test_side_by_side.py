"""Threads beside each other: what one does wrong is told, and who keeps Python's lock to itself is found out."""

import sys
import threading
import time

import pytest

from collage_evo.testing.side_by_side import shared_time, together


class Looks:
    """A clock that shows how often somebody has looked."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now

    def wait(self, looks: int) -> None:
        """Let go of the lock until others have looked so often."""
        end = self._now + looks
        while self._now < end:
            time.sleep(0)


def test_a_call_that_lets_go_of_the_lock_is_told_from_one_that_does_not() -> None:
    clock = Looks()
    assert shared_time(lambda: clock.wait(20), clock=clock) >= 0.5
    assert shared_time(lambda: sum(range(10_000)), most_calls=5, clock=clock) == 0.0


def test_runs_are_at_the_same_time_and_the_first_fault_is_told() -> None:
    both = threading.Barrier(2, timeout=60.0)

    def one() -> str:
        both.wait()
        return ""

    def other() -> str:
        both.wait()
        raise KeyError("gone")

    assert together([one, one]) == ""
    assert together([one, other]) == "raised KeyError: 'gone'"


def test_a_call_that_raises_leaves_no_thread_behind() -> None:
    def fail() -> None:
        raise KeyError("gone")

    before, switched = threading.active_count(), sys.getswitchinterval()
    with pytest.raises(KeyError):
        shared_time(fail)
    assert (threading.active_count(), sys.getswitchinterval()) == (before, switched)
