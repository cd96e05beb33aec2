"""Progress of a run, by its stages: a bar on a terminal, plain lines elsewhere, a function for a program."""

from __future__ import annotations

import inspect
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from collage_evo.errors import printable
from collage_evo.report.console import PlainConsole
from collage_evo.report.stage import RUN_STAGES, Stage
from collage_evo.report.words import capitalised, format_time

WIDTH = 12
"""Width of the bar: a terminal of 80 columns has room for the stage next to it and the time left."""


@dataclass(eq=False)
class Course:
    """Progress of a run. Durations of finished stages correct the expected durations of later ones.

    ``expected``: known durations of some stages in seconds, for example the search's.
    """

    clock: Callable[[], float] = time.monotonic
    expected: Mapping[Stage, float] = field(default_factory=dict)
    current: Stage | None = None
    total: float | None = None
    done: float = 0.0
    low: float = 0.0
    high: float = 1.0
    """This run's share of all the work, if there are several runs."""
    _began: float = 0.0
    _spent: float = 0.0
    _guessed: float = 0.0
    _reached: float = 0.0
    _end: float = math.inf

    def expect(self, seconds: Mapping[Stage, float]) -> None:
        """A run begins, with the expected durations of some stages."""
        self.expected, self.current, self._spent, self._guessed = seconds, None, 0.0, 0.0

    def ends_in(self, seconds: float) -> None:
        """All the work ends in so many seconds."""
        self._end = self.clock() + seconds

    def within(self, low: float, high: float) -> None:
        """The following is this share of the whole."""
        self.low, self.high, self._reached = low, high, max(self._reached, low)

    def stage(self, stage: Stage, total: float | None) -> None:
        """A stage begins, and the one before is over."""
        if self.current and self.current not in self.expected:
            self._spent += self.clock() - self._began
            self._guessed += self._seconds(self.current)
        self.current, self.total, self.done, self._began = stage, total, 0.0, self.clock()

    def advance(self, amount: float) -> None:
        """Add to the finished work of the stage."""
        self.done += amount

    @property
    def fraction(self) -> float:
        """Finished share of all the work, 0 to 1; it never decreases."""
        before, after = self._others
        behind, ahead = (sum(map(self._seconds, names)) for names in (before, after))
        here = self._seconds(self.current) or 1.0
        fraction = (behind + here * self._here()) / (behind + here + ahead)
        self._reached = max(self._reached, self.low + (self.high - self.low) * min(fraction, 1.0))
        return self._reached

    @property
    def seconds_left(self) -> float:
        """Remaining seconds of all the work, scaled by the durations of earlier stages over their usual ones."""
        later = (1.0 - self.high) / (self.high - self.low)  # runs that are still to come
        work_s = self._here_left() + self._of(self._others[1]) + later * self._of(RUN_STAGES)
        return min(work_s, max(0.0, self._end - self.clock()))

    def _of(self, stages: Sequence[Stage]) -> float:
        """Expected seconds of stages."""
        expected = sum(self.expected.get(stage, 0.0) for stage in stages)
        return expected + self._pace * sum(self._seconds(stage) for stage in stages if stage not in self.expected)

    @property
    def _pace(self) -> float:
        """Duration of stages over the usual one, between a third and ten."""
        return min(10.0, max(1 / 3, self._spent / self._guessed)) if self._guessed > 5.0 else 1.0

    def _here(self) -> float:
        """Finished share of this stage; without a total it approaches 1 ever more slowly."""
        if self.total:
            return min(1.0, self.done / self.total)
        usual = self._pace * (self._seconds(self.current) or 5.0)
        return 1.0 - math.exp(-(self.clock() - self._began) / usual) if self.current else 0.0

    def _here_left(self) -> float:
        usual, spent = self._seconds(self.current), self.clock() - self._began
        if self.current in self.expected:
            return max(0.0, usual - spent)
        if self.total and self.done:
            return spent / self.done * max(0.0, self.total - self.done)
        return max(0.0, self._pace * usual - spent)

    def _seconds(self, stage: Stage | None) -> float:
        return self.expected.get(stage, stage.usual_s or 0.0) if stage else 0.0

    @property
    def _others(self) -> tuple[Sequence[Stage], Sequence[Stage]]:
        """The stages before and after this one; empty around one of no run, such as a sweep of trials."""
        if self.current not in RUN_STAGES:
            return (), ()
        at = RUN_STAGES.index(self.current)
        return RUN_STAGES[:at], RUN_STAGES[at + 1 :]


class Reporter(Course, ABC):
    """Progress that is shown when a stage begins, then at most every ``interval_s`` seconds."""

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._interval, self._last = interval_s, clock()

    @abstractmethod
    def log(self, text: str) -> None:
        """A line for the log. Other threads may call this too."""

    def stage(self, stage: Stage, total: float | None = None) -> None:
        super().stage(stage, total)
        self._show("")

    def advance(self, amount: float = 1, note: str = "") -> None:
        super().advance(amount)
        if self.clock() - self._last >= self._interval:
            self._show(note)

    def _show(self, note: str) -> None:
        """Show the stage, a note, the progress of the whole and the time left."""
        self._last = self.clock()

    def _work(self, note: str) -> str:
        """The stage, and a note on it."""
        words = self.current.words if self.current else "starting"
        return f"{words}: {note}" if note else words

    @property
    def _left(self) -> str:
        """The time left, after a comma."""
        seconds = self.seconds_left
        return f", {format_time(seconds)} left" if seconds >= 1.0 else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing is open."""


class LineReporter(Reporter):
    """Plain lines: each stage, then at most one line of progress every ``interval_s`` seconds."""

    def __init__(
        self,
        write: Callable[[str], object] | None = None,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(interval_s, clock)
        self._write = write or (lambda text: print(text, file=sys.stderr, flush=True))
        self._begin = self._last

    def log(self, text: str) -> None:
        self._write(f"[{self.clock() - self._begin:4.0f} s] {printable(text)}")

    def _show(self, note: str) -> None:
        super()._show(note)
        self.log(f"{capitalised(self._work(note))} ({100 * self.fraction:.0f} %{self._left})")


class BarReporter(Reporter):
    """One bar for all of the work, with the stage, its results so far and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(0.0, time.monotonic)
        self._progress = Progress(
            _Column(lambda: ProgressBar(total=1.0, completed=self.fraction, width=WIDTH)),
            _Column(lambda: Text(f"{100 * self.fraction:3.0f} %{self._left}", no_wrap=True)),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console or PlainConsole(stderr=True),
        )
        self._task = self._progress.add_task("starting", total=1.0)

    def log(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, soft_wrap=True)  # commands in it can be copied

    def _show(self, note: str) -> None:
        self._progress.update(self._task, description=self._work(note), refresh=not note)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.update(self._task, visible=False)  # a summary line below reports the result
        self._progress.stop()


class NotebookReporter(Reporter):
    """The same bar in the output of a notebook's cell, with the last line of the log below it."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        super().__init__(0.5, time.monotonic)
        self._html, self._line = HTML, ""
        self._shown = display(HTML(""), display_id=True)

    def log(self, text: str) -> None:
        self._line = printable(text)
        self._show("")

    def _show(self, note: str) -> None:
        super()._show(note)
        fraction = self.fraction
        stage = escape(f"{100 * fraction:.0f} %{self._left} {self._work(note)}")
        text = f"<progress value='{fraction:.2f}'></progress> {stage}<br>{escape(self._line)}"
        self._shown.update(self._html(text))

    def __exit__(self, *exception: object) -> None:
        self._shown.update(self._html(""))


class _Column(ProgressColumn):
    """What is true at each moment: it advances even if a stage reports nothing."""

    def __init__(self, now: Callable[[], RenderableType]) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._now = now

    def render(self, task: Task) -> RenderableType:
        return self._now()


OnProgress = Callable[..., object]
"""Called with the stage's name, its finished and its total work (None: not known), and a note.

A function with parameters called ``fraction`` or ``seconds_left`` receives those too: the finished share of all the
work, and the approximate seconds of the rest.
"""


class CallbackReporter(Reporter):
    """Calls a function with all progress that the terminal would show, at most every ``interval_s`` seconds."""

    def __init__(
        self, callback: OnProgress, interval_s: float = 0.2, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(interval_s, clock)
        self._callback, self._wanted = callback, _wanted(callback)
        self._last -= interval_s

    def log(self, text: str) -> None:
        self._show(text)

    def _show(self, note: str) -> None:
        super()._show(note)
        overall = {"fraction": self.fraction, "seconds_left": self.seconds_left}
        more = {name: value for name, value in overall.items() if name in self._wanted}
        self._callback(self.current or "", self.done, self.total, note, **more)


def _wanted(callback: Callable[..., Any]) -> frozenset[str]:
    """Keyword arguments that the function accepts."""
    names = frozenset({"fraction", "seconds_left"})
    try:
        parameters = inspect.signature(callback).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return frozenset()
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return names if takes_all else names & parameters.keys()


def reporter(quiet: bool = False) -> LineReporter | BarReporter | NotebookReporter:
    """A bar when standard error is a terminal or a notebook, plain lines when not; nothing if ``quiet``."""
    if quiet:
        return LineReporter(write=lambda text: None)
    if Console().is_jupyter:
        return NotebookReporter()
    return BarReporter() if sys.stderr.isatty() else LineReporter()
