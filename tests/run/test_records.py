"""The loop over a plan's rows: what it reads, makes, stores, and gives to their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from collage_evo.errors import DamagedFile
from collage_evo.files import Stored
from collage_evo.run.context import RunContext
from collage_evo.run.records import Key, Plan, Records, Row, Seconds
from tests.support.machine import FakeMachine
from tests.support.runs import fake_run

COUNTS = Stored("work/counts.json", list[int])


@dataclass(frozen=True)
class Count:
    """What is counted."""

    number: int


@dataclass(frozen=True)
class Total:
    """Content of a file with a key."""

    key: str
    number: int


TOTAL = Stored("work/total.json", Total)


def counts(run: RunContext, seconds: Seconds) -> list[int] | None:
    run.reporter.log("counts")
    return [1, 2] if seconds > 5.0 else None


def last(counted: list[int] | None) -> Count:
    return Count(counted[-1] if counted else 0)


def total(run: RunContext, count: Count, key: Key) -> Total:
    run.reporter.log("adds")
    return Total(key, count.number + 40)


def of_count(count: Count) -> Key:
    return Key(f"of {count.number}")


PLAN = Plan((Row(counts, COUNTS, last, bound="costs.seconds"), Row(total, TOTAL, key=of_count)))


@pytest.fixture
def begun(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    def total_of(seconds: float = 9.0) -> tuple[int, list[str]]:
        """The total of a process of the run, and which functions it called."""
        lines: list[str] = []
        run = fake_run(tmp_path, FakeMachine(lambda job: None), lines, **{"costs.seconds": seconds})
        return Records(PLAN, {RunContext: run})[Total].number, lines

    return total_of


def test_a_later_process_reads_what_an_earlier_one_made(begun: Callable[..., tuple[int, list[str]]]) -> None:
    assert begun() == (42, ["counts", "adds"])
    assert begun() == (42, [])


def test_what_is_of_something_else_is_made_again(
    begun: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    begun()
    (tmp_path / COUNTS.path).write_text("[7]")
    assert begun() == (47, ["adds"])
    assert begun() == (47, [])


def test_of_nothing_no_file_is_left(begun: Callable[..., tuple[int, list[str]]], tmp_path: Path) -> None:
    assert begun(1.0) == (40, ["counts", "adds"])
    assert not (tmp_path / COUNTS.path).exists()
    assert begun(1.0) == (40, ["counts"]), "it is asked again"


def test_a_damaged_file_is_told(begun: Callable[..., tuple[int, list[str]]], tmp_path: Path) -> None:
    begun()
    (tmp_path / TOTAL.path).write_text("[]")
    with pytest.raises(DamagedFile, match=r"total\.json is damaged"):
        begun()
