"""Measurements of an artifact beside libraries or beside its own front: plain data, a table, a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from collage_evo.answer.sequential import Ratio
from collage_evo.placement.failure import Failure
from collage_evo.report.console import new_table
from collage_evo.report.result import FrontPoint
from collage_evo.report.words import describe_failure, format_shapes, raw_words

ARTIFACT = "the artifact"
SLOWER, OVER_BUDGET = 4, 5
"""Exit codes: the artifact is certainly slower than a library; its error exceeds the budget, or it does not run."""


@dataclass(frozen=True)
class Side:
    """One side of the comparison.

    Attributes:
        name: of the library; :data:`ARTIFACT`.
        own_settings: the library reads the file itself, with its own settings except for the number of threads; else
            it runs the model as its backend compiles it here.
        latency_ms: median; None if it did not run.
        error: relative error (2-norm) or drop of the metric on the samples; None if it is not known.
        over: speed-up of the artifact over it; without an interval if it did not race.
        raced: whether it raced.
        load_ms, peak_bytes: cost of loading in a process of its own, and its peak memory.
        reason: why it did not run, or did not race.
        detail: the library's own message, if that differs.
    """

    name: str
    own_settings: bool = True
    latency_ms: float | None = None
    error: float | None = None
    over: Ratio | None = None
    raced: bool = False
    load_ms: float | None = None
    peak_bytes: int | None = None
    reason: str = ""
    detail: str = ""


def failed(side: Side, failure: Failure) -> Side:
    """``side`` with the reason why it did not run; for the artifact the complete message, which is this package's
    own."""
    if side.name == ARTIFACT:
        return replace(side, reason=str(failure))
    return replace(side, reason=describe_failure(failure, side.name), detail=raw_words(failure, side.name))


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison on this machine.

    ``budget``: the largest error allowed, None if any is. ``other_processor``: the differences between this
    processor's instructions and those of the one that the artifact was made with; empty if there are none.
    ``other_file``: the file is not the one that the artifact was made from. ``sessions``: how many ran at once; with
    several, times are the machine's for a run.
    """

    artifact: str
    shapes: Mapping[str, Sequence[int]]
    file: str
    threads: int
    cpu: str
    samples: int
    sample_source: str
    metric: str
    budget: float | None
    ours: Side
    libraries: tuple[Side, ...]
    rounds: int
    seconds: float
    other_processor: str = ""
    other_file: bool = False
    sessions: int = 1

    @property
    def over_budget(self) -> bool:
        """Whether the artifact's error exceeds the budget, or is not known."""
        return self.budget is not None and not (self.ours.error is not None and self.ours.error <= self.budget)

    @property
    def rivals(self) -> tuple[Side, ...]:
        """The libraries that ran and are within the budget, the fastest first."""
        running = [side for side in self.libraries if side.latency_ms is not None and self._keeps(side)]
        return tuple(sorted(running, key=lambda side: side.latency_ms or 0.0))

    def slower_than(self, at_least: float) -> tuple[Side, ...]:
        """The rivals over which the artifact's speed-up is certainly less than ``at_least``."""
        return tuple(side for side in self.rivals if side.over is not None and side.over.high < at_least)

    def exit_code(self, at_least: float) -> int:
        """Exit code for scripts: see :data:`SLOWER`, :data:`OVER_BUDGET`; 0 if neither holds."""
        if self.over_budget or self.ours.latency_ms is None:
            return OVER_BUDGET
        return SLOWER if self.slower_than(at_least) else 0

    def _keeps(self, side: Side) -> bool:
        return self.budget is None or (side.error is not None and side.error <= self.budget)


def print_comparison(comparison: Comparison, at_least: float, console: Console) -> None:
    """Print the table, notes on it, and the verdict."""
    title = f"{comparison.artifact} on {comparison.cpu}, {comparison.threads} thread(s)"
    title += f", {format_shapes(comparison.shapes)}"
    table = new_table(title, "what...", "ms", "artifact over it", "error", "load s", "memory MB")
    for side in (comparison.ours, *sorted(comparison.libraries, key=lambda side: side.latency_ms or float("inf"))):
        table.add_row(_name(side), *_cells(side), style="bold" if side is comparison.ours else None)
    console.print(table)
    for side in (comparison.ours, *comparison.libraries):
        if side.reason:
            console.print(f"{_name(side)}: {side.reason}", highlight=False)
    for line in (*notes(comparison), verdict(comparison, at_least)):
        console.print(line, highlight=False)


def notes(comparison: Comparison) -> list[str]:
    """Notes for readers of the table."""
    what = f"drop of {comparison.metric}" if comparison.metric else "relative error (2-norm)"
    lines = [
        f"Libraries ran {comparison.file}, with their own settings but for the number of threads. Error: {what} on "
        f"{comparison.samples} samples {comparison.sample_source}. "
        f"Turns: {comparison.rounds} rounds over {comparison.seconds:.0f} s."
    ]
    if comparison.sessions > 1:
        at_once = f"{comparison.sessions} sessions at once"
        lines.append(f"Made for throughput: ms are the machine's for a run, with {at_once}.")
    if any(not side.own_settings for side in comparison.libraries):
        lines.append("Converted: the library reads no ONNX file itself; this program converted it.")
    if comparison.other_processor:
        lines.append(f"Another processor: {comparison.other_processor}.")
    if comparison.other_file:
        lines.append("Another file: the artifact was not made of this one, or not with these shapes.")
    return lines


def verdict(comparison: Comparison, at_least: float = 1.0) -> str:
    """The result for the artifact here, in one sentence."""
    if comparison.ours.latency_ms is None:
        return f"The artifact does not run here: {comparison.ours.reason}."
    error = "not known" if comparison.ours.error is None else f"{comparison.ours.error:.2g}"
    allowed = "" if comparison.budget is None else f" (budget {comparison.budget:.2g})"
    if comparison.over_budget:
        return f"The artifact exceeds the budget: its error is {error}{allowed}."
    if not comparison.rivals:
        return f"No library that ran meets the budget; the artifact's error is {error}{allowed}."
    best = comparison.rivals[0]
    lines = f"the artifact is {_ratio(best.over)} times as fast as {_name(best)}, the fastest that meets the budget"
    if best.over is not None and best.over.rounds and best.over.low < at_least <= best.over.high:
        lines += f" (whether at least {at_least:g} is not certain: --seconds gives more turns)"
    if slow := comparison.slower_than(at_least):
        names = ", ".join(map(_name, slow))
        slower = f"Slower: the artifact is not {at_least:g} times as fast as {names}"
        return f"{slower}; {lines}. Its error is {error}{allowed}."
    return f"{lines[0].upper()}{lines[1:]}; its error is {error}{allowed}."


def _cells(side: Side) -> Sequence[str]:
    ms = "-" if side.latency_ms is None else f"{side.latency_ms:.3g}"
    error = "-" if side.error is None else f"{side.error:.1e}"
    load = "" if side.load_ms is None else f"{side.load_ms / 1e3:.2f}"
    memory = "" if side.peak_bytes is None else f"{side.peak_bytes / 1e6:.0f}"
    return ms, _ratio(side.over), error, load, memory


def _ratio(over: Ratio | None) -> str:
    if over is None:
        return ""
    return f"{over.estimate:.2f} [{over.low:.2f}, {over.high:.2f}]" if over.rounds else f"about {over.estimate:.1f}"


def _name(side: Side) -> str:
    if side.name == ARTIFACT:
        return ARTIFACT
    return f"{side.name} with its defaults" if side.own_settings else f"{side.name}, converted"


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


def print_rechecked(rechecked: Rechecked, console: Console) -> None:
    """Print the table and its consequences."""
    title = f"{rechecked.artifact}: as it was, and as it is on {rechecked.cpu}"
    table = new_table(title, "ms then", "now", "error then", "now ", "what...")
    for again in rechecked.points:
        text = f"the answer; {again.how}" if again.answer else again.how
        cells = (*_both(again, "latency_ms", ".3g"), *_both(again, "error", ".1e"))
        why = f"; does not run here: {again.reason}" if again.reason else ""
        table.add_row(*cells, f"{text}{why}", style="bold" if again.answer else None)
    console.print(table)
    if rechecked.other_processor:
        console.print(f"Another processor: {rechecked.other_processor}.", highlight=False)
    samples = f"{rechecked.samples} samples {rechecked.sample_source}"
    console.print(f"Errors on {samples}; {rechecked.rounds} rounds of turns.", highlight=False)
    console.print(verdict_on_front(rechecked), highlight=False)


def verdict_on_front(rechecked: Rechecked) -> str:
    """The result for the answer here, in one sentence."""
    answer, faster = rechecked.answer, rechecked.faster
    allowed = "" if rechecked.largest is None else f" (budget {rechecked.largest:.2g})"
    if answer is not None and answer.now is not None and answer.now.feasible:
        if faster is None:
            return f"The answer meets its budget{allowed}, and nothing of its front is faster here for certain."
        return f"The answer meets its budget{allowed}, but {faster.how} is {faster.over} times as fast: {_SEARCH}."
    if answer is None or answer.now is None:
        text = f"The answer does not run here ({answer.reason if answer else 'it is gone'})"
    else:
        error = "not known" if answer.now.error is None else f"{answer.now.error:.2g}"
        text = f"The answer exceeds its budget here: its error is {error}{allowed}"
    other = f"; the fastest of its front that meets it is {rechecked.fit[0].how}" if rechecked.fit else ""
    return f"{text}{other}: {_SEARCH}."


def _both(again: Again, name: str, form: str) -> Sequence[str]:
    values = (getattr(point, name) if point else None for point in (again.before, again.now))
    return ["-" if value is None else f"{value:{form}}" for value in values]
