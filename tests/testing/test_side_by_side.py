"""Threads beside each other: what one does wrong is told."""

import threading

from collage_evo.testing.side_by_side import together


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
