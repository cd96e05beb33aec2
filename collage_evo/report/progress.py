"""Progress for the person who waits: a bar on a terminal, plain lines elsewhere, a function for a program."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from collage_evo.errors import printable
from collage_evo.report.console import PlainConsole
from collage_evo.report.stages import Course, words_of
from collage_evo.report.words import capitalised, format_time

WIDTH = 12
"""Of the bar: on a terminal of 80 columns there is room for the stage beside it and the time left."""


class Reporter(Protocol):
    """What a stage tells while it works. ``say`` may be called in other threads too."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """A run begins; some of its stages, by name, take about so long."""

    def within(self, low: float, high: float) -> None:
        """What follows is the share of all the work from ``low`` to ``high``, where there are several runs."""

    def stage(self, name: str, total: float | None = None) -> None:
        """A new stage begins; ``total`` is how much it has to do, where known."""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """``amount`` more is done."""

    def log(self, text: str) -> None:
        """A line worth keeping."""


class LineReporter:
    """Plain lines: each stage, then at most one line of progress every ``interval_s`` seconds."""

    def __init__(
        self,
        write: Callable[[str], object] | None = None,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write or (lambda text: print(text, file=sys.stderr, flush=True))
        self._interval = interval_s
        self._clock = clock
        self._begin = self._last = clock()
        self._course = Course(clock)

    def expect(self, seconds: Mapping[str, float]) -> None:
        self._course.expect(seconds)

    def within(self, low: float, high: float) -> None:
        self._course.within(low, high)

    def stage(self, name: str, total: float | None = None) -> None:
        self._course.stage(name, total)
        self._write_line("")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._course.advance(amount)
        if self._clock() - self._last >= self._interval:
            self._write_line(note)

    def log(self, text: str) -> None:
        self._write(f"[{self._clock() - self._begin:4.0f} s] {printable(text)}")

    def _write_line(self, note: str) -> None:
        """The stage, a note, how far it all is and how long it will take."""
        self._last = self._clock()
        parts = [f"{100 * self._course.fraction:.0f} %", _left(self._course)]
        words = capitalised(words_of(self._course.name))
        self.log(f"{words}{f': {note}' if note else ''} ({', '.join(filter(None, parts))})")

    def __enter__(self) -> LineReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _left(course: Course) -> str:
    seconds = course.seconds_left
    return f"{format_time(seconds)} left" if seconds >= 1.0 else ""


class BarReporter:
    """One bar for all of the work, with the stage, what it found so far and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self._course = Course()
        self._progress = Progress(
            _Bar(self._course),
            _Left(self._course),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console or PlainConsole(stderr=True),
        )
        self._task = self._progress.add_task("starting", total=1.0)

    def expect(self, seconds: Mapping[str, float]) -> None:
        self._course.expect(seconds)

    def within(self, low: float, high: float) -> None:
        self._course.within(low, high)

    def stage(self, name: str, total: float | None = None) -> None:
        self._course.stage(name, total)
        self._update("")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._course.advance(amount)
        self._update(note)

    def log(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, soft_wrap=True)  # commands in it can be copied

    def _update(self, note: str) -> None:
        words = words_of(self._course.name)
        self._progress.update(self._task, description=f"{words}: {note}" if note else words, refresh=not note)

    def __enter__(self) -> BarReporter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.update(self._task, visible=False)  # what was done is told below
        self._progress.stop()


class _Bar(ProgressColumn):
    """The bar as it is at each moment: it goes on while a stage says nothing."""

    def __init__(self, course: Course) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._course = course

    def render(self, task: Task) -> ProgressBar:
        return ProgressBar(total=1.0, completed=self._course.fraction, width=WIDTH)


class _Left(ProgressColumn):
    """How far all of it is, and the time left, as they are at each moment."""

    def __init__(self, course: Course) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._course = course

    def render(self, task: Task) -> Text:
        left = _left(self._course)
        return Text(f"{100 * self._course.fraction:3.0f} %{', ' if left else ''}{left}", no_wrap=True)


OnProgress = Callable[..., object]
"""Takes the stage's name, how much of it is done, how much there is (None: not known), a note.

One with parameters called ``fraction`` or ``seconds_left`` is told those too: the share of all the work that is done,
and about how many seconds the rest takes.
"""


class CallbackReporter:
    """Tells a function all that a person would be told, steps of progress at most every ``interval_s`` seconds."""

    def __init__(
        self, callback: OnProgress, interval_s: float = 0.2, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write_line, self._interval, self._clock = callback, interval_s, clock
        self._course = Course(clock)
        self._wanted = _wanted(callback)
        self._last = clock() - interval_s

    def expect(self, seconds: Mapping[str, float]) -> None:
        self._course.expect(seconds)

    def within(self, low: float, high: float) -> None:
        self._course.within(low, high)

    def stage(self, name: str, total: float | None = None) -> None:
        self._course.stage(name, total)
        self.log("")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._course.advance(amount)
        if self._clock() - self._last >= self._interval:
            self.log(note)

    def log(self, text: str) -> None:
        course = self._course
        self._last = self._clock()
        overall = {"fraction": course.fraction, "seconds_left": course.seconds_left}
        more = {name: value for name, value in overall.items() if name in self._wanted}
        self._write_line(course.name, course.done, course.total, text, **more)


def _wanted(callback: Callable[..., Any]) -> frozenset[str]:
    """Which of what is told by name the function takes."""
    names = frozenset({"fraction", "seconds_left"})
    try:
        parameters = inspect.signature(callback).parameters
    except (TypeError, ValueError):  # some built-in functions do not say
        return frozenset()
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return names if takes_all else names & parameters.keys()


def reporter() -> LineReporter | BarReporter:
    """A bar when standard error is a terminal, plain lines when not."""
    return BarReporter() if sys.stderr.isatty() else LineReporter()
