"""Result of measuring an answer again: as plain data, a table, a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from collage_evo.answer.sequential import Ratio
from collage_evo.report.console import new_table
from collage_evo.report.result import FrontPoint


@dataclass(frozen=True)
class Again:
    """A point of the front of latency against error, then and now.

    ``before`` is None if no run has it. ``now`` is None if it does not run here; then ``reason`` is why, and
    ``detail`` the library's own message, if that differs. ``over``: its speed-up over the answer.
    """

    before: FrontPoint | None
    now: FrontPoint | None
    reason: str = ""
    over: Ratio | None = None
    detail: str = ""

    @property
    def how(self) -> str:
        """Description in words."""
        point = self.before or self.now
        return point.how if point else "the artifact"

    @property
    def answer(self) -> bool:
        """Whether it is the published answer."""
        return (self.before or self.now or _ANSWER).answer


_SEARCH = "run the search again on this machine"
_ANSWER = FrontPoint(0.0, None, "", "", (), answer=True)


@dataclass(frozen=True)
class Rechecked:
    """Result for an answer, and for the front that it comes from, on this machine.

    ``largest``: the error allowed, None if any is. ``samples`` and ``sample_source``: their number and origin.
    """

    artifact: str
    made_on: str
    cpu: str
    other_processor: str
    samples: int
    sample_source: str
    largest: float | None
    rounds: int
    points: tuple[Again, ...]

    @property
    def answer(self) -> Again | None:
        """The published answer."""
        return next((again for again in self.points if again.answer), None)

    @property
    def fit(self) -> tuple[Again, ...]:
        """Points within the budget here, the fastest first."""
        fit = [again for again in self.points if again.now is not None and again.now.feasible]
        return tuple(sorted(fit, key=lambda again: again.now.latency_ms if again.now else 0.0))

    @property
    def faster(self) -> Again | None:
        """The fastest of these that is certainly faster than the answer."""
        return next((again for again in self.fit if again.over is not None and again.over.low > 1.0), None)


def print_rechecked(found: Rechecked, console: Console) -> None:
    """Print the table and its consequences."""
    title = f"{found.artifact}: as it was, and as it is on {found.cpu}"
    table = new_table(title, "ms then", "now", "error then", "now ", "what...")
    for again in found.points:
        text = f"the answer; {again.how}" if again.answer else again.how
        cells = (*_both(again, "latency_ms", ".3g"), *_both(again, "error", ".1e"))
        why = f"; does not run here: {again.reason}" if again.reason else ""
        table.add_row(*cells, f"{text}{why}", style="bold" if again.answer else None)
    console.print(table)
    if found.other_processor:
        console.print(f"Another processor: {found.other_processor}.", highlight=False)
    samples = f"{found.samples} samples {found.sample_source}"
    console.print(f"Errors on {samples}; {found.rounds} rounds of turns.", highlight=False)
    console.print(verdict(found), highlight=False)


def verdict(found: Rechecked) -> str:
    """The result for the answer here, in one sentence."""
    answer, faster = found.answer, found.faster
    allowed = "" if found.largest is None else f" (budget {found.largest:.2g})"
    if answer is not None and answer.now is not None and answer.now.feasible:
        if faster is None:
            return f"The answer keeps its budget{allowed}, and nothing of its front is faster here for certain."
        return f"The answer keeps its budget{allowed}, but {faster.how} is {faster.over} times as fast: {_SEARCH}."
    if answer is None or answer.now is None:
        text = f"The answer does not run here ({answer.reason if answer else 'it is gone'})"
    else:
        error = "not known" if answer.now.error is None else f"{answer.now.error:.2g}"
        text = f"The answer breaks its budget here: its error is {error}{allowed}"
    other = f"; the fastest of its front that keeps it is {found.fit[0].how}" if found.fit else ""
    return f"{text}{other}: {_SEARCH}."


def _both(again: Again, name: str, form: str) -> Sequence[str]:
    values = (getattr(point, name) if point else None for point in (again.before, again.now))
    return ["-" if value is None else f"{value:{form}}" for value in values]
