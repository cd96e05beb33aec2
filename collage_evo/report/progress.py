"""Progress output: a bar on a terminal, plain lines elsewhere, a function for a program."""

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
"""Width of the bar: a terminal of 80 columns has room for the stage next to it and the time left."""


class Reporter(Protocol):
    """Receiver of a stage's progress. Other threads may call ``log`` too."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """A run begins; ``seconds`` are expected durations of some of its stages, by name."""

    def within(self, low: float, high: float) -> None:
        """With several runs: the following is the share of all the work from ``low`` to ``high``."""

    def stage(self, name: str, total: float | None = None) -> None:
        """A new stage begins; ``total`` is its amount of work, if known."""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """``amount`` more is done."""

    def log(self, text: str) -> None:
        """A line for the log."""


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
        """Write the stage, a note, the progress of the whole and the time left."""
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
    """One bar for all of the work, with the stage, its results so far and the time left."""

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
        self._progress.update(self._task, visible=False)  # a summary line below reports the result
        self._progress.stop()


class _Bar(ProgressColumn):
    """The bar at each moment: it advances even if a stage reports nothing."""

    def __init__(self, course: Course) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._course = course

    def render(self, task: Task) -> ProgressBar:
        return ProgressBar(total=1.0, completed=self._course.fraction, width=WIDTH)


class _Left(ProgressColumn):
    """The overall progress, and the time left, at each moment."""

    def __init__(self, course: Course) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._course = course

    def render(self, task: Task) -> Text:
        left = _left(self._course)
        return Text(f"{100 * self._course.fraction:3.0f} %{', ' if left else ''}{left}", no_wrap=True)


OnProgress = Callable[..., object]
"""Called with the stage's name, its finished and its total work (None: not known), and a note.

A function with parameters called ``fraction`` or ``seconds_left`` receives those too: the finished share of all the
work, and the approximate seconds of the rest.
"""


class CallbackReporter:
    """Calls a function with all progress that the terminal would show, at most every ``interval_s`` seconds."""

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
    """Keyword arguments that the function accepts."""
    names = frozenset({"fraction", "seconds_left"})
    try:
        parameters = inspect.signature(callback).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return frozenset()
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return names if takes_all else names & parameters.keys()


def reporter() -> LineReporter | BarReporter:
    """A bar when standard error is a terminal, plain lines when not."""
    return BarReporter() if sys.stderr.isatty() else LineReporter()
