"""Progress for the person who waits: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from collage_evo.errors import printable
from collage_evo.report.console import PlainConsole


class Reporter(Protocol):
    """What a stage tells while it works. ``say`` may be called in other threads too."""

    def stage(self, name: str, total: float | None = None) -> None:
        """A new stage begins; ``total`` is how much it has to do, where known."""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """``amount`` more is done."""

    def say(self, text: str) -> None:
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
        self._name = ""
        self._total: float | None = None
        self._done = 0.0

    def stage(self, name: str, total: float | None = None) -> None:
        self._name, self._total, self._done = name, total, 0.0
        self._last = self._clock()
        self.say(name)

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._done += amount
        if self._clock() - self._last >= self._interval:
            self._last = self._clock()
            of = f"/{self._total:.0f}" if self._total else ""
            self.say(f"{self._name}: {self._done:.0f}{of} {note}".rstrip())

    def say(self, text: str) -> None:
        self._write(f"[{self._clock() - self._begin:6.1f} s] {printable(text)}")

    def __enter__(self) -> LineReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class BarReporter:
    """A bar with the stage, how far it is, what it found so far and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=console or PlainConsole(stderr=True),
        )
        self._task = self._progress.add_task("starting", total=None, note="")

    def stage(self, name: str, total: float | None = None) -> None:
        self._progress.update(self._task, visible=False)
        self._task = self._progress.add_task(name, total=total, note="")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._progress.advance(self._task, amount)
        if note:
            self._progress.update(self._task, note=note)

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def __enter__(self) -> BarReporter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


OnProgress = Callable[[str, float, float | None, str], object]
"""Takes the stage's name, how much of it is done, how much there is (None: not known), a note."""


class CallbackReporter:
    """Tells a function all that a person would be told."""

    def __init__(self, tell: OnProgress) -> None:
        self._tell = tell
        self._name, self._done = "", 0.0
        self._total: float | None = None

    def stage(self, name: str, total: float | None = None) -> None:
        self._name, self._done, self._total = name, 0.0, total
        self.say("")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._done += amount
        self.say(note)

    def say(self, text: str) -> None:
        self._tell(self._name, self._done, self._total, text)


def reporter() -> LineReporter | BarReporter:
    """A bar when standard error is a terminal, plain lines when not."""
    return BarReporter() if sys.stderr.isatty() else LineReporter()
