"""Who waits is told what is done, how far all of it is and how long it takes; a program as often as it can use."""

from __future__ import annotations

import builtins
import io
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.report.console import PlainConsole, new_table
from collage_evo.report.progress import BarReporter, CallbackReporter, Course, LineReporter, reporter
from collage_evo.report.stage import RUN_STAGES, Stage


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run_through(clock: Clock, tell: Any, seconds: float = 4.0) -> None:
    """All stages of a run that most runs have, each of so many seconds."""
    for stage in RUN_STAGES:
        if stage.usual_s:
            tell.stage(stage)
            clock.now += seconds


class Cell:
    """Outputs of a notebook's cell, and what replaced them; stands in for ``IPython.display``."""

    HTML = staticmethod(str)

    def __init__(self) -> None:
        self.outputs: list[object] = []
        self.updates: list[str] = []

    def display(self, shown: object, display_id: bool = False) -> Any:
        self.outputs.append(shown)
        return SimpleNamespace(update=self.updates.append)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    made = Cell()
    monkeypatch.setattr(builtins, "get_ipython", type("ZMQInteractiveShell", (), {}), raising=False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=made))
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    return made


def test_in_a_notebook_one_output_is_a_bar_that_is_replaced(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    with reporter() as told:
        run_through(Clock(), told)
        told.log("best so far, <b>")
    assert len(cell.outputs) == 1
    assert all("<progress value=" in text for text in cell.updates[:-1])
    assert "comparing the best thoroughly" in "".join(cell.updates)
    assert "best so far, &lt;b&gt;" in cell.updates[-2]
    assert cell.updates[-1] == "", "nothing is left of it"
    assert capsys.readouterr().err == ""


def test_a_quiet_run_tells_nothing_wherever_it_is(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    with reporter(quiet=True) as told:
        run_through(Clock(), told)
        told.log("best so far")
    assert (capsys.readouterr(), cell.outputs) == (("", ""), [])


def test_in_a_notebook_tables_are_not_displayed_beside_being_captured(cell: Cell) -> None:
    console = PlainConsole(file=io.StringIO(), record=True)
    console.print(new_table("title", "ms"))
    assert cell.outputs == []
    assert console.export_text().count("title") == 1


def test_in_a_pipe_each_stage_has_a_line_with_how_far_it_all_is_and_the_time_left() -> None:
    clock, lines = Clock(), list[str]()
    run_through(clock, LineReporter(lines.append, clock=clock))
    assert len(lines) == sum(bool(stage.usual_s) for stage in RUN_STAGES)
    shares = [int(re.findall(r"(\d+) %", line)[-1]) for line in lines]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] > 90
    assert all(" left)" in line for line in lines[:-1])


def test_how_far_a_run_is_never_goes_back_and_ends_near_one() -> None:
    clock = Clock()
    course = Course(clock)
    course.expect({Stage.SEARCH: 30.0})
    seen = []
    for stage in (Stage.MODEL, Stage.BASELINES, Stage.SEARCH, Stage.FINAL, Stage.VERIFY):
        course.stage(stage, 4.0 if stage is Stage.BASELINES else None)
        for _ in range(4):
            clock.now += 5.0
            course.advance(1.0)
            seen.append(course.fraction)
    assert seen == sorted(seen)
    assert 0.0 < seen[0] < 0.2
    assert 0.9 < seen[-1] <= 1.0


def test_the_time_left_counts_what_the_search_may_take_and_how_slow_stages_were() -> None:
    def left(pace: float) -> float:
        clock = Clock()
        course = Course(clock)
        course.expect({Stage.SEARCH: 100.0})
        for stage in RUN_STAGES[:5]:
            course.stage(stage, None)
            clock.now += pace * (stage.usual_s or 0.0)
        course.stage(Stage.PROFILES, None)
        return course.seconds_left

    usual, slow = left(1.0), left(3.0)
    assert usual > 100.0
    assert slow - 100.0 == pytest.approx(3.0 * (usual - 100.0), rel=0.1)


def test_the_time_left_ends_at_the_deadline() -> None:
    clock, lines = Clock(), list[str]()
    reporter = LineReporter(lines.append, clock=clock)
    reporter.ends_in(40.0)
    clock.now += 10.0
    reporter.stage(Stage.BASELINES)
    clock.now += 50.0
    reporter.stage(Stage.SEARCH)
    assert "30 s left" in lines[0]
    assert "left" not in lines[1]


def test_with_several_runs_each_is_a_share_of_the_whole() -> None:
    clock, seen = Clock(), list[tuple[float, float]]()

    def note(
        stage: str, done: float, total: float | None, text: str, *, fraction: float, seconds_left: float
    ) -> None:
        seen.append((fraction, seconds_left))

    reporter = CallbackReporter(note, clock=clock)
    for part in range(2):
        reporter.within(part / 2, (part + 1) / 2)
        reporter.expect({})
        run_through(clock, reporter)
        assert part / 2 <= seen[-1][0] <= (part + 1) / 2
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert seen[0][1] > 30.0


def test_a_function_is_not_called_for_each_of_many_small_steps() -> None:
    clock, calls = Clock(), list[tuple[Any, ...]]()
    reporter = CallbackReporter(lambda *told: calls.append(told), clock=clock)
    reporter.stage(Stage.SEARCH, 70.0)
    for _ in range(70):
        clock.now += 1 / 70
        reporter.advance()
    assert 3 <= len(calls) <= 8
    assert all(len(call) == 4 for call in calls)
    reporter.log("kept, however soon")
    assert calls[-1][3] == "kept, however soon"


def test_the_bar_has_each_stage_its_share_and_the_time_left() -> None:
    file = io.StringIO()
    with BarReporter(PlainConsole(file=file, force_terminal=True, width=80)) as reporter:
        reporter.expect({Stage.SEARCH: 10.0})
        for stage in (Stage.OTHER_SHAPES, Stage.SEARCH):
            reporter.stage(stage)
            reporter.advance(1.0, "best 3.21 ms")
            reporter.log("a line of its own")
    lines = re.sub(r"\x1b\[[0-9;?]*m", "", file.getvalue()).replace("\r", "\n").replace("\x1b[2K", "").splitlines()
    assert "a line of its own" in lines
    for stage in (Stage.OTHER_SHAPES, Stage.SEARCH):
        assert any(re.search(rf"\d %, .* left +{stage.words}", line) for line in lines)
    assert max(len(stage.words) for stage in Stage) <= 48, "no room beside the bar"
