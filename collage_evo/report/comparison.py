"""Comparison of an artifact with libraries or with its own front: plain data, a table, a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console

from collage_evo.answer.sequential import Ratio
from collage_evo.genome.failure import Failure
from collage_evo.report.console import new_table
from collage_evo.report.result import FrontPoint
from collage_evo.report.words import call_counts, describe_failure, format_ms, format_shapes

ARTIFACT, FALLBACK = "the artifact", "its fall-back"
SLOWER, OVER_BUDGET, AGAIN = 4, 5, 6
"""Exit codes: the artifact is certainly slower than a library, or all that another environment has than the artifact
here; its error exceeds the budget, or it does not run; another environment needs a new search."""


@dataclass(frozen=True)
class Side:
    """One side of the comparison.

    Attributes:
        name: of the library, or :data:`ARTIFACT`, or of a point of the front in the race.
        own_settings: the library reads the file itself, with its own settings except for the number of threads; else
            it runs the model as its backend compiles it here.
        latency_ms: median; None if it did not run.
        error: relative error (2-norm) or drop of the metric on the samples; None if it is not known.
        over: speed-up of the artifact over it; without an interval if it did not race.
        raced: whether it raced.
        load_ms, peak_bytes: cost of loading in a process of its own, and its peak memory.
        reason: why it did not run, or did not race.
        detail: the library's own message, if that differs.
        feasible: whether it ran within the budget.
        before: what the run measured, if it is a point of the run's front.
        python: interpreter of the other environment in which it ran; empty for this one.
        over_here: its speed-up over the same side here, if it ran elsewhere.
        over_answer: its speed-up over the answer in the same environment, if it ran elsewhere.
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
    feasible: bool = False
    before: FrontPoint | None = None
    python: str = ""
    over_here: Ratio | None = None
    over_answer: Ratio | None = None

    @property
    def key(self) -> str:
        """Its name in the race."""
        return f"{self.name} there" if self.python else self.name


def failed(side: Side, failure: Failure) -> Side:
    """``side`` with the reason why it did not run; for the artifact the complete message, which is this package's
    own."""
    if side.name == ARTIFACT:
        return replace(side, reason=str(failure))
    library = side.name if side.before is None and side.name != FALLBACK else ""
    return replace(side, reason=describe_failure(failure, library), detail=failure.raw_text)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison on this machine.

    ``budget``: the largest error allowed, None if any is. ``front``: the other points of the run's front, compiled
    again here; empty unless they were asked for. ``made_on``: the processor that the artifact was made with.
    ``other_processor``: how this processor's instructions differ from that one's; empty if they do not.
    ``other_file``: the file is not the one that the artifact was made from. ``sessions``: how many ran at once; with
    several, times are the machine's for a run. ``call_ms``: what a call of the artifact's session adds to its time,
    which is of the execution; None if it is not known. ``there``: the answer, its fall-back and the libraries in the
    environment of another Python; ``versions``: of each library here and there, where they differ.
    """

    artifact: str
    shapes: Mapping[str, Sequence[int | str]]
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
    front: tuple[Side, ...] = ()
    made_on: str = ""
    other_processor: str = ""
    other_file: bool = False
    sessions: int = 1
    call_ms: float | None = None
    there: tuple[Side, ...] = ()
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def over_budget(self) -> bool:
        """Whether the artifact's error exceeds the budget or is not known, or it does not run."""
        return not self.ours.feasible

    @property
    def rivals(self) -> tuple[Side, ...]:
        """The libraries that ran and are within the budget, the fastest first."""
        return _usable(self.libraries)

    @property
    def has_front(self) -> bool:
        """Whether the run's front takes part."""
        return any(side.before is not None for side in (self.ours, *self.front))

    def slower_than(self, at_least: float) -> tuple[Side, ...]:
        """The rivals over which the artifact's speed-up is certainly less than ``at_least``."""
        return tuple(side for side in self.rivals if side.over is not None and side.over.high < at_least)

    def upgrade(self, at_least: float) -> tuple[int, str]:
        """The exit code and the advice on the other environment, which has to be ``at_least`` so many times as fast
        as this one. Only what is certain counts against it."""
        as_fast = [one for one in _usable(self.there) if one.over is not None and one.over.low * at_least <= 1.0]
        if all(one.latency_ms is None for one in self.there):
            return SLOWER, f"Nothing runs there: {next((one.reason for one in self.there), '')}."
        if not as_fast:
            return SLOWER, "Do not upgrade: nothing that meets the budget there is as fast as the artifact here."
        answer = next((side for side in as_fast if side.name == ARTIFACT), None)
        faster = [side for side in as_fast if side.over_answer is not None and side.over_answer.low > 1.0]
        if faster:
            return AGAIN, f"Run the search again there: {_name(faster[0])} is faster than the answer."
        if answer is None:
            why = f"the answer does not run within the budget, and {_name(as_fast[0])} may be as fast as it is here"
            return AGAIN, f"Run the search again there: {why}."
        return 0, f"Keep the answer: it is {_ratio(answer.over_here)} times as fast there as here."

    def exit_code(self, at_least: float) -> int:
        """Exit code for scripts: see :data:`SLOWER`, :data:`OVER_BUDGET`, :data:`AGAIN`; 0 if none holds."""
        if self.over_budget:
            return OVER_BUDGET
        return self.upgrade(at_least)[0] if self.there else SLOWER if self.slower_than(at_least) else 0


def _usable(sides: Sequence[Side]) -> tuple[Side, ...]:
    return tuple(sorted((side for side in sides if side.feasible), key=lambda side: side.latency_ms or 0.0))


def print_comparison(comparison: Comparison, at_least: float, console: Console) -> None:
    """Print the table, notes on it, and the verdict."""
    where = f"{comparison.cpu}, {comparison.threads} thread(s), {format_shapes(comparison.shapes)}"
    others = sorted(
        (*comparison.libraries, *comparison.front, *comparison.there),
        key=lambda side: side.latency_ms or float("inf"),
    )
    # A terminal of 80 columns has no room for all.
    more = ("ms then", "error then") if comparison.has_front else ("load s", "memory MB")
    table = new_table(f"{comparison.artifact} on {where}", "what...", "ms", "artifact over it", "error", *more)
    for side in (comparison.ours, *others):
        ms, error = _numbers(side)
        cells = (ms, _ratio(side.over), error, *(_numbers(side.before) if comparison.has_front else _served(side)))
        table.add_row(_name(side), *cells, style="bold" if side is comparison.ours else None)
    console.print(table)
    for side in (comparison.ours, *others):
        if side.reason:
            console.print(f"{_name(side)}: {side.reason}", highlight=False)
    for line in (*notes(comparison), verdict(comparison, at_least)):
        console.print(line, highlight=False)


def notes(comparison: Comparison) -> list[str]:
    """Notes for readers of the table."""
    what = f"drop of {comparison.metric}" if comparison.metric else "relative error (2-norm)"
    ran = f"Libraries ran {comparison.file}, with their own settings but for the number of threads. "
    lines = [
        f"{ran if comparison.libraries else ''}Error: {what} on "
        f"{comparison.samples} samples {comparison.sample_source}. "
        f"Turns: {comparison.rounds} rounds over {comparison.seconds:.0f} s."
    ]
    if comparison.has_front:
        lines.append(f"Then: as the run measured it, on {comparison.made_on}.")
    if comparison.there:
        changed = [f"{name} {both[1] or 'missing'} (here {both[0]})" for name, both in comparison.versions.items()]
        ratios = [f"{side.name} {_ratio(side.over_here)}" for side in comparison.there if side.over_here]
        lines.append(
            f"There: {comparison.there[0].python}, with {', '.join(changed) or 'the same versions of libraries'}. "
            f"There over here: {'; '.join(ratios) or 'not known'}."
        )
    if comparison.sessions > 1:
        at_once = f"{comparison.sessions} sessions at once"
        lines.append(f"Made for throughput: ms are the machine's for a run, with {at_once}.")
    if any(not side.own_settings for side in comparison.libraries):
        lines.append("Converted: the library reads no ONNX file itself; this program converted it.")
    if comparison.other_processor:
        again = " The answer is compiled again for this one." if comparison.has_front else ""
        lines.append(f"Another processor: {comparison.other_processor}.{again}")
    if comparison.other_file:
        lines.append("Another file: the artifact was not made of this one, or not with these shapes.")
    return lines


def verdict(comparison: Comparison, at_least: float = 1.0) -> str:
    """The result for the artifact here, in one sentence; with a front, or another environment, another one says what
    to do about it."""
    advice = comparison.upgrade(at_least)[1] if comparison.there and not comparison.over_budget else ""
    return f"{_verdict(comparison, at_least)}{_call(comparison)} {_verdict_on_front(comparison)}{advice}".rstrip()


def _call(comparison: Comparison) -> str:
    """A sentence on the artifact's call if that adds as much as the artifact wins over the fastest library."""
    ours_ms, rivals = comparison.ours.latency_ms, comparison.rivals
    if ours_ms is None or not rivals or comparison.over_budget or not call_counts(ours_ms, comparison.call_ms):
        return ""
    whole_ms, best_ms = ours_ms + (comparison.call_ms or 0.0), rivals[0].latency_ms or 0.0
    if not ours_ms < best_ms <= whole_ms:
        return ""
    call = f"A call of the artifact's session adds {format_ms(comparison.call_ms)} ms"
    return f" {call}, no less than it wins over {_name(rivals[0])}; exported files of one library have no such call."


def _verdict(comparison: Comparison, at_least: float) -> str:
    if comparison.ours.latency_ms is None:
        return f"The artifact does not run here: {comparison.ours.reason}."
    error = "not known" if comparison.ours.error is None else f"{comparison.ours.error:.2g}"
    allowed = "" if comparison.budget is None else f" (budget {comparison.budget:.2g})"
    if comparison.over_budget:
        return f"The artifact exceeds the budget: its error is {error}{allowed}."
    if not comparison.rivals:
        start = "No library that ran meets the budget; the" if comparison.libraries else "The"
        return f"{start} artifact's error is {error}{allowed}."
    best = comparison.rivals[0]
    lines = f"the artifact is {_ratio(best.over)} times as fast as {_name(best)}, the fastest that meets the budget"
    if best.over is not None and best.over.rounds and best.over.low < at_least <= best.over.high:
        lines += f" (whether at least {at_least:g} is not certain: --seconds gives more turns)"
    if slow := comparison.slower_than(at_least):
        names = ", ".join(map(_name, slow))
        slower = f"Slower: the artifact is not {at_least:g} times as fast as {names}"
        return f"{slower}; {lines}. Its error is {error}{allowed}."
    return f"{lines[0].upper()}{lines[1:]}; its error is {error}{allowed}."


def _verdict_on_front(comparison: Comparison) -> str:
    if not comparison.has_front:
        return ""
    search, others = "run the search again on this machine", _usable(comparison.front)
    if comparison.ours.feasible:
        faster = [side for side in others if side.over is not None and side.over.high < 1.0]
        if not faster:
            return "Nothing of its front is faster here for certain."
        ratio, other = _ratio(faster[0].over), _name(faster[0])
        return f"Of its front, {other} is faster here: the artifact is {ratio} times as fast: {search}."
    if not others:
        return f"Nothing of its front meets the budget here: {search}."
    return f"The fastest of its front that meets the budget here is {_name(others[0])}: {search}."


def _numbers(of: Side | FrontPoint | None) -> tuple[str, str]:
    ms = "-" if of is None or of.latency_ms is None else f"{of.latency_ms:.3g}"
    return ms, "-" if of is None or of.error is None else f"{of.error:.1e}"


def _served(side: Side) -> tuple[str, str]:
    load = "" if side.load_ms is None else f"{side.load_ms / 1e3:.2f}"
    return load, "" if side.peak_bytes is None else f"{side.peak_bytes / 1e6:.0f}"


def _ratio(over: Ratio | None) -> str:
    if over is None:
        return ""
    return f"{over.estimate:.2f} [{over.low:.2f}, {over.high:.2f}]" if over.rounds else f"about {over.estimate:.1f}"


def _name(side: Side) -> str:
    if side.before is not None:
        return f"{ARTIFACT}; {side.before.how}" if side.name == ARTIFACT else side.before.how
    if side.name in (ARTIFACT, FALLBACK):
        return side.key
    return f"{side.key} with its defaults" if side.own_settings else f"{side.key}, converted"
